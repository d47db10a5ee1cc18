package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
)

// closing is a busy locker: it holds a lock, waits for one, releases one and acquires one.
type closing struct {
	*Locker
	held    fence.Lease
	waiting <-chan result
	failing <-chan result
}

// busy returns a locker that holds a lock and waits for another one, and injects a fault.
// Then it begins to release a lock and to acquire one.
func busy(t testing.TB, client *clientv3.Client, cfg *Config, inject func()) *closing {
	t.Helper()
	lasting := *cfg // the other one holds for as long as the test takes
	lasting.TTL, lasting.RequestTimeout = etcdtest.Patience, etcdtest.Patience
	other := newTestLocker(t, client, &lasting)
	acquire(t, other, "theirs")
	c := &closing{Locker: newTestLocker(t, client, cfg)}
	c.held = acquireAtLast(t, c.Locker, "held")
	released := acquireAtLast(t, c.Locker, "released")
	c.waiting = acquiring(patient(t), c.Locker, "theirs")
	awaitKeys(t, client, c.cluster.Keys.Queue("theirs"), 2)
	inject()
	require.ErrorIs(t, released.Release(over(t)), context.Canceled)
	c.failing = acquiring(patient(t), c.Locker, "new")
	return c
}

// requireCloses requires that Close without a deadline takes no longer than the leases
// live, and ends everything.
func (c *closing) requireCloses(t testing.TB) error {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(context.Background()) }()
	var err error
	select {
	case err = <-closed:
	case <-patient(t).Done():
		require.FailNow(t, "Close doesn't return")
	}
	// Its own deadline may have come first.
	require.Contains(t, []fence.LossReason{fence.LossClosed, fence.LossDeadline}, lossOf(t, c.held))
	require.Error(t, (<-c.waiting).err)
	require.Error(t, (<-c.failing).err)
	stopped := make(chan struct{})
	go func() {
		c.cluster.Tasks.Stop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-patient(t).Done():
		require.FailNow(t, "something goes on in the background")
	}
	return err
}

// bounded is a config whose locks live for six seconds.
func bounded(t testing.TB) *Config {
	cfg := fresh(t)
	cfg.TTL, cfg.RequestTimeout = 6*time.Second, 2*time.Second
	return cfg
}

func TestClose_ReturnsWhileEtcdIsSilent(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t)
	c := busy(t, dial(t, e.Endpoint()), bounded(t), func() { require.NoError(t, e.Pause()) })
	requireReason(t, c.requireCloses(t), fence.Unreachable)
}
