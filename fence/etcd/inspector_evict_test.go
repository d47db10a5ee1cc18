package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestEvict_PassesTheLockOn(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i := newTestInspector(t, client, cfg)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held, other := acquire(t, a, "sku/42"), acquire(t, a, "other")
	held.AfterContended(func() {})
	waiting := acquiring(patient(t), b, "sku/42")
	awaitKeys(t, client, a.cluster.Keys.Queue("sku/42"), 2)

	done, err := i.Evict(patient(t), "sku/42", held.Grant().Token, "it hangs", "me@here")
	require.NoError(t, err)
	require.Equal(t, held.Grant(), done.Grant)
	next := etcdtest.Receive(t, waiting)
	require.NoError(t, next.err)
	require.Greater(t, next.lease.Grant().Token, held.Grant().Token)
	require.Equal(t, fence.LossDeleted, lossOf(t, held))
	require.NoError(t, other.Err(), "its other locks stay")

	all, err := i.Evictions(patient(t))
	require.NoError(t, err)
	require.Equal(t, []Eviction{done}, all)
	require.Equal(t, "it hangs", done.Reason)
	require.Equal(t, "me@here", done.By)
	require.WithinDuration(t, time.Now(), done.At, time.Minute)
	record, err := client.Get(patient(t), i.cluster.Keys.Evictions(), clientv3.WithPrefix())
	require.NoError(t, err)
	left, err := i.timeToLive(patient(t), clientv3.LeaseID(record.Kvs[0].Lease))
	require.NoError(t, err)
	require.InDelta(t, evictionKept.Seconds(), float64(left), 60)

	// The evicted process acquires again, with a higher token.
	release(t, next.lease)
	require.Greater(t, acquire(t, a, "sku/42").Grant().Token, next.lease.Grant().Token)
}

// The holder has passed the lock on after it was read, and before the transaction: neither the
// waiter's key nor a later one of the same name is deleted.
func TestEvict_OfAHolderThatHasGoneChangesNothing(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i := newTestInspector(t, client, cfg)
	l := newTestLocker(t, client, cfg)
	held := acquire(t, l, "r")
	seen, err := i.Lock(patient(t), "r")
	require.NoError(t, err)
	release(t, held)
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 0)
	again := acquire(t, l, "r")
	require.Equal(t, keyOf(held), keyOf(again))
	evicted, err := i.evict(patient(t), seen.Queue[0], Eviction{Grant: held.Grant(), Reason: "it hangs"})
	require.NoError(t, err)
	require.False(t, evicted)
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 1)

	// A key that is no longer the first is not a holder's either.
	waiter := Acquisition{Grant: again.Grant(), key: keyOf(again)}
	_, err = client.Put(patient(t), l.cluster.Keys.Queue("r")+"0-1", "of no locker")
	require.NoError(t, err)
	waiter.key = l.cluster.Keys.Queue("r") + "0-1"
	kvs := awaitKeys(t, client, l.cluster.Keys.Queue("r"), 2)
	waiter.Grant.Token = fence.Token(kvs[1].CreateRevision)
	evicted, err = i.evict(patient(t), waiter, Eviction{Grant: waiter.Grant, Reason: "it hangs"})
	require.NoError(t, err)
	require.False(t, evicted)
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 2)
}
