package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// sight is what an observer has seen.
type sight struct {
	leader fence.Leader
	err    error
}

// observation is an Observe in another goroutine, which ends with the test.
type observation struct {
	t      testing.TB
	cancel context.CancelFunc
	seen   chan sight
}

func observe(t testing.TB, e *Election) *observation {
	ctx, cancel := context.WithCancel(t.Context()) // next bounds each wait; a slow test may observe for longer
	o := &observation{t: t, cancel: cancel, seen: make(chan sight)}
	go func() {
		defer close(o.seen)
		for now, err := range e.Observe(ctx) {
			select {
			case o.seen <- sight{now, err}:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(cancel)
	return o
}

func (o *observation) next() sight {
	o.t.Helper()
	s := etcdtest.Receive(o.t, o.seen)
	require.NotZero(o.t, s, "the observation ended")
	return s
}

// until reads on until the expected last state comes.
func (o *observation) until(want fence.Leader) {
	o.t.Helper()
	for o.next().leader != want {
	}
}

func (o *observation) ended() {
	o.t.Helper()
	_, ok := <-o.seen
	require.False(o.t, ok)
}

func TestObserve_ShowsEachLeaderAndTheLastValue(t *testing.T) {
	t.Parallel()
	all := newElections(t, fresh(t), 3)
	seen := observe(t, all[2])
	require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, seen.next())
	for round := range 3 {
		led := campaign(t, all[round%2], "candidate")
		require.Equal(t, sight{fence.Leader{Grant: led.Grant(), Value: "candidate"}, nil}, seen.next())
		require.NoError(t, led.Proclaim(patient(t), "elected"))
		require.Equal(t, sight{fence.Leader{Grant: led.Grant(), Value: "elected"}, nil}, seen.next())
		waiting := campaigning(patient(t), all[1-round%2], "waiting")
		awaitKeys(t, all[2].locker.cluster.Client, all[2].locker.cluster.Keys.Queue("leader"), 2)
		require.NoError(t, led.Resign(patient(t)))
		next := (<-waiting).led
		require.Equal(t, sight{fence.Leader{Grant: next.Grant(), Value: "waiting"}, nil}, seen.next(), "and nothing for those who wait")
		require.NoError(t, next.Resign(patient(t)))
		require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, seen.next())
	}
	led := campaign(t, all[0], "0")
	for _, value := range []string{"1", "2", "3", "4", "5"} {
		require.NoError(t, led.Proclaim(patient(t), value))
	}
	seen.until(fence.Leader{Grant: led.Grant(), Value: "5"})
	seen.cancel()
	seen.ended()
}

// Each iteration of a sequence begins anew, and leaves nothing behind when it ends.
func TestObserve_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	e := newElections(t, fresh(t), 1)[0]
	observed := e.Observe(patient(t))
	for range 2 {
		for now, err := range observed {
			require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, sight{now, err})
			break
		}
		require.True(t, e.locker.watcher.Idle())
	}
	for range e.Observe(over(t)) {
		require.FailNow(t, "its context has ended")
	}
}

func TestObserve_SurvivesBrokenWatchesAndCompactions(t *testing.T) {
	t.Parallel()
	server := ownEtcd(t)
	p := newProxy(t, server.Endpoint())
	cfg, admin := fresh(t), dial(t, server.Endpoint())
	a := election(t, newTestLocker(t, admin, cfg), "leader")
	seen := observe(t, election(t, newTestLocker(t, dial(t, p.endpoint()), cfg), "leader"))
	require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, seen.next())
	led := campaign(t, a, "0")
	seen.until(fence.Leader{Grant: led.Grant(), Value: "0"})
	for range 3 {
		p.cut()
	}
	require.NoError(t, led.Proclaim(patient(t), "1"))
	seen.until(fence.Leader{Grant: led.Grant(), Value: "1"})

	p.set(func() { p.down = true })
	require.NoError(t, led.Resign(patient(t)))
	led = campaign(t, a, "2")
	resp, err := admin.Put(patient(t), "x", "y")
	require.NoError(t, err)
	_, err = admin.Compact(patient(t), resp.Header.Revision)
	require.NoError(t, err)
	p.set(func() { p.down = false })
	seen.until(fence.Leader{Grant: led.Grant(), Value: "2"})

	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(patient(t)))
	require.NoError(t, led.Proclaim(patient(t), "3"))
	seen.until(fence.Leader{Grant: led.Grant(), Value: "3"})
}

// The queue is polled as well, since a watch may fail.
func TestObserve_ComesToTheLatestWithoutAWatch(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	a := newElections(t, cfg, 1)[0]
	cfg.pollInterval = 10 * time.Millisecond
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainStreamInterceptor(blind))
	seen := observe(t, election(t, newTestLocker(t, client, cfg), "leader"))
	require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, seen.next())
	led := campaign(t, a, "0")
	seen.until(fence.Leader{Grant: led.Grant(), Value: "0"})
	require.NoError(t, led.Proclaim(patient(t), "1"))
	seen.until(fence.Leader{Grant: led.Grant(), Value: "1"})
}

// A newer etcd answers behind the same name, as after a restore: its revisions are far
// below those that the observer has seen.
func TestObserve_FollowsAnEtcdThatWentBack(t *testing.T) {
	t.Parallel()
	older, younger := ownEtcd(t), ownEtcd(t)
	p := newProxy(t, older.Endpoint())
	cfg := fresh(t)
	a := election(t, newTestLocker(t, dial(t, older.Endpoint()), cfg), "leader")
	b := election(t, newTestLocker(t, dial(t, younger.Endpoint()), cfg), "leader")
	for range 10 { // the older one is far ahead
		require.NoError(t, campaign(t, a, "").Resign(patient(t)))
	}
	old, young := campaign(t, a, "old"), campaign(t, b, "young")
	require.Less(t, young.Grant().Token, old.Grant().Token)
	cfg.pollInterval = 10 * time.Millisecond
	seen := observe(t, election(t, newTestLocker(t, dial(t, p.endpoint()), cfg), "leader"))
	seen.until(fence.Leader{Grant: old.Grant(), Value: "old"})
	p.set(func() { p.upstream = address(younger.Endpoint()) })
	p.cut()
	seen.until(fence.Leader{Grant: young.Grant(), Value: "young"})
	require.NoError(t, young.Proclaim(patient(t), "still young"))
	seen.until(fence.Leader{Grant: young.Grant(), Value: "still young"})
}

func TestObserve_EndsWithTheClient(t *testing.T) {
	t.Parallel()
	client := dial(t, etcdserver.Shared(t).Endpoint())
	seen := observe(t, election(t, newTestLocker(t, client, fresh(t)), "leader"))
	require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, seen.next())
	require.NoError(t, client.Close())
	require.ErrorIs(t, seen.next().err, fence.ErrUnavailable)
	seen.ended()
}

// shownEvents signals when a response with events has been handled.
type shownEvents struct {
	grpc.ClientStream
	events  bool
	handled chan struct{}
}

func (s *shownEvents) RecvMsg(m any) error {
	if s.events {
		s.events = false
		close(s.handled)
	}
	err := s.ClientStream.RecvMsg(m)
	resp, ok := m.(*pb.WatchResponse)
	s.events = err == nil && ok && len(resp.Events) > 0
	return err
}

// Before the first list nothing is known: that must not be reported as "no leader".
func TestObserve_DecidesNothingOnEventsBeforeAList(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	a := newElections(t, cfg, 1)[0]
	handled, listing := make(chan struct{}), make(chan struct{}, 1)
	endpoint := etcdserver.Shared(t).Endpoint()
	l := newTestLocker(t, dial(t, endpoint,
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, cc, method, opts...)
			if err != nil || method != pb.Watch_Watch_FullMethodName {
				return stream, err
			}
			return &shownEvents{ClientStream: stream, handled: handled}, nil
		}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if method == pb.KV_Range_FullMethodName {
				listing <- struct{}{}
				<-handled
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		})), cfg)
	seen := observe(t, election(t, l, "leader"))
	etcdtest.Receive(t, listing)
	led := campaign(t, a, "0")
	require.Equal(t, sight{fence.Leader{Grant: led.Grant(), Value: "0"}, nil}, seen.next())
}
