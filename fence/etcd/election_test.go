package etcd

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func election(t testing.TB, l *Locker, name string) *Election {
	t.Helper()
	e, err := l.Election(name)
	require.NoError(t, err)
	return e.(*Election)
}

func newElections(t testing.TB, cfg *Config, n int) []*Election {
	t.Helper()
	all := make([]*Election, n)
	for i := range all {
		all[i] = election(t, newTestLocker(t, etcdserver.Client(t), cfg), "leader")
	}
	return all
}

func campaign(t testing.TB, e *Election, value string) fence.Leadership {
	t.Helper()
	led, err := e.Campaign(patient(t), value)
	require.NoError(t, err)
	return led
}

type campaigned struct {
	led fence.Leadership
	err error
}

func campaigning(ctx context.Context, e *Election, value string) <-chan campaigned {
	done := make(chan campaigned, 1)
	go func() {
		led, err := e.Campaign(ctx, value)
		done <- campaigned{led, err}
	}()
	return done
}

func requireLeader(t testing.TB, e *Election, led fence.Leadership, value string) {
	t.Helper()
	now, err := e.Leader(patient(t))
	require.NoError(t, err)
	require.Equal(t, fence.Leader{Grant: led.Grant(), Value: value}, now)
}

func TestClose_EndsElections(t *testing.T) {
	t.Parallel()
	all := newElections(t, fresh(t), 2)
	led := campaign(t, all[0], "")
	waiting := campaigning(patient(t), all[1], "")
	awaitKeys(t, all[0].locker.cluster.Client, all[0].locker.cluster.Keys.Queue("leader"), 2)
	seen := observe(t, all[1])
	require.Equal(t, sight{fence.Leader{Grant: led.Grant()}, nil}, seen.next())
	require.NoError(t, all[1].locker.Close(patient(t)))
	require.ErrorIs(t, (<-waiting).err, fence.ErrClosed)
	require.Equal(t, sight{fence.Leader{}, cluster.ErrLockerClosed}, seen.next())
	seen.ended()
	_, err := all[1].Leader(patient(t))
	require.ErrorIs(t, err, fence.ErrClosed)
	require.NoError(t, all[0].locker.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, led))
	require.ErrorIs(t, led.Proclaim(patient(t), "x"), fence.ErrLeaseLost)
}

func blind(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == pb.Watch_Watch_FullMethodName {
		return nil, errors.New("no watch today")
	}
	return open(ctx, desc, cc, method, opts...)
}

// A leader doesn't know that its key was deleted; a later leader has proclaimed.
func TestProclaim_OfADeposedLeaderIsRejected(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	cfg := fresh(t)
	old := election(t, newTestLocker(t, dial(t, endpoint, grpc.WithChainStreamInterceptor(blind)), cfg), "leader")
	e := election(t, newTestLocker(t, dial(t, endpoint), cfg), "leader")
	for name, usurp := range map[string]func(key string){
		"the key is gone": func(string) {},
		"another of the same name": func(key string) {
			_, err := e.locker.cluster.Client.Put(patient(t), key, "")
			require.NoError(t, err)
		},
	} {
		deposed := campaign(t, old, "old")
		key := keyOf(deposed)
		_, err := e.locker.cluster.Client.Delete(patient(t), key)
		require.NoError(t, err)
		led := campaign(t, e, "new")
		usurp(key)
		require.NoError(t, deposed.Context().Err(), "it has not heard of it")
		loss := new(fence.LeaseLostError)
		require.ErrorAs(t, deposed.Proclaim(patient(t), "old again"), &loss, name)
		require.Equal(t, fence.LeaseLostError{Grant: deposed.Grant(), Reason: fence.LossDeleted}, *loss)
		require.ErrorIs(t, deposed.Context().Err(), context.Canceled, "now it knows")
		requireLeader(t, old, led, "new")
		resp, err := e.locker.cluster.Client.Get(patient(t), key)
		require.NoError(t, err)
		for _, kv := range resp.Kvs {
			require.Empty(t, kv.Value)
		}
		require.NoError(t, led.Resign(patient(t)))
		_, err = e.locker.cluster.Client.Delete(patient(t), key)
		require.NoError(t, err)
	}
}

func isProclaim(txn *pb.TxnRequest) bool {
	return len(txn.Compare) == 1 && txn.Compare[0].Target == pb.Compare_MOD
}

// A Proclaim of unknown outcome that arrives after a later one must not undo it.
func TestProclaim_ThatArrivesLateTakesNoEffect(t *testing.T) {
	t.Parallel()
	held := etcdtest.NewLateTxn(isProclaim)
	e := election(t, newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(held.Intercept)), fresh(t)), "leader")
	led := campaign(t, e, "0")

	held.Arm()
	err := led.Proclaim(patient(t), "lost")
	deliver := held.Kept(t)
	require.True(t, isInDoubt(err))
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.NoError(t, led.Proclaim(patient(t), "1"))
	late := deliver()
	require.NotNil(t, late)
	require.False(t, late.Succeeded)
	requireLeader(t, e, led, "1")

	held.Arm()
	require.True(t, isInDoubt(led.Proclaim(patient(t), "arrived")))
	deliver = held.Kept(t)
	require.True(t, deliver().Succeeded)
	requireLeader(t, e, led, "arrived")
	require.NoError(t, led.Proclaim(patient(t), "2"), "it replaces the value that it finds")
	requireLeader(t, e, led, "2")
	require.NoError(t, led.Proclaim(patient(t), "3"))
}

type sight struct {
	leader fence.Leader
	err    error
}

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

func TestObserve_SurvivesBrokenWatchesAndCompactions(t *testing.T) {
	t.Parallel()
	server := ownEtcd(t)
	p := newLink(t, server.Endpoint())
	cfg, admin := fresh(t), dial(t, server.Endpoint())
	a := election(t, newTestLocker(t, admin, cfg), "leader")
	seen := observe(t, election(t, newTestLocker(t, p.dial(t), cfg), "leader"))
	require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, seen.next())
	led := campaign(t, a, "0")
	seen.until(fence.Leader{Grant: led.Grant(), Value: "0"})
	for range 3 {
		p.Reset()
	}
	require.NoError(t, led.Proclaim(patient(t), "1"))
	seen.until(fence.Leader{Grant: led.Grant(), Value: "1"})

	p.goDown()
	require.NoError(t, led.Resign(patient(t)))
	led = campaign(t, a, "2")
	resp, err := admin.Put(patient(t), "x", "y")
	require.NoError(t, err)
	_, err = admin.Compact(patient(t), resp.Header.Revision)
	require.NoError(t, err)
	p.down.Store(false)
	seen.until(fence.Leader{Grant: led.Grant(), Value: "2"})

	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(patient(t)))
	require.NoError(t, led.Proclaim(patient(t), "3"))
	seen.until(fence.Leader{Grant: led.Grant(), Value: "3"})
}
