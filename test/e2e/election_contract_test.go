package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// patiently is a context that only a hang exceeds.
func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Code that was tested with guardtest's elections finds the same in etcd's.
func TestElection_ThatOfGuardtestBehavesAsEtcdsDoes(t *testing.T) {
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		prefix := fmt.Sprintf("election-%x", rand.Uint64())
		testElections(t, func(name string) (fence.Election, error) {
			l, err := etcd.NewLocker(etcdserver.Client(t), &etcd.Config{Prefix: prefix})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
			return l.Election(name)
		})
	})
	t.Run("guardtest", func(t *testing.T) {
		t.Parallel()
		service := guardtest.NewLockService()
		testElections(t, func(name string) (fence.Election, error) { return service.NewLocker("test").Election(name) })
	})
}

// testElections runs what holds of all elections; each call of process is another
// process that takes part in one.
func testElections(t *testing.T, process func(name string) (fence.Election, error)) {
	ctx := patiently(t)
	_, err := process("")
	require.ErrorAs(t, err, new(*fence.InvalidGrantError))
	join := func() fence.Election {
		e, err := process("jobs")
		require.NoError(t, err)
		return e
	}
	first, second, onlooker := join(), join(), join()
	_, err = onlooker.Leader(ctx)
	require.ErrorIs(t, err, fence.ErrNoLeader)
	seen, done := observing(ctx, onlooker)
	require.Equal(t, fence.Leader{}, <-seen)

	led, err := first.Campaign(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, fence.Leader{Grant: led.Grant(), Value: "a"}, <-seen)
	tired, stop := context.WithCancel(ctx)
	stop()
	_, err = second.Campaign(tired, "b")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, led.Proclaim(tired, "b"), context.Canceled)

	contended := make(chan struct{})
	led.AfterContended(func() { close(contended) })
	elected := make(chan fence.Leadership, 1)
	go func() {
		next, err := second.Campaign(ctx, "b")
		if err == nil {
			elected <- next
		}
	}()
	select {
	case <-contended:
	case <-ctx.Done():
		require.FailNow(t, "the second process does not wait for the election")
	}
	require.NoError(t, led.Proclaim(ctx, "a2"))
	require.Equal(t, fence.Leader{Grant: led.Grant(), Value: "a2"}, <-seen)
	require.NoError(t, led.Resign(ctx))
	require.ErrorIs(t, led.Proclaim(ctx, "a3"), fence.ErrReleased)
	require.NoError(t, led.Resign(ctx), "again")
	var next fence.Leadership
	select {
	case next = <-elected:
	case <-ctx.Done():
		require.FailNow(t, "the second process is not elected")
	}
	require.Positive(t, next.Grant().Compare(led.Grant()))
	now, err := first.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, fence.Leader{Grant: next.Grant(), Value: "b"}, now)
	for leader := range seen {
		if leader == now {
			break
		}
	}
	require.NoError(t, next.Resign(ctx))
	require.Equal(t, fence.Leader{}, <-seen)
	done()
	_, more := <-seen
	require.False(t, more)
	_, err = onlooker.Leader(tired)
	require.ErrorIs(t, err, context.Canceled)
}

// observing observes until done is called; seen is closed then.
func observing(ctx context.Context, e fence.Election) (seen <-chan fence.Leader, done func()) {
	ctx, done = context.WithCancel(ctx)
	leaders := make(chan fence.Leader)
	go func() {
		defer close(leaders)
		for leader := range e.Observe(ctx) {
			select {
			case leaders <- leader:
			case <-ctx.Done():
			}
		}
	}()
	return leaders, done
}
