package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
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
