package inspect

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/locks"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var (
	patient   = etcdtest.Patient
	awaitKeys = etcdtest.AwaitKeys
)

func fresh(t testing.TB) *etcd.Config {
	return &etcd.Config{Prefix: t.Name() + "-" + rand.Text(), TTL: 30 * time.Second}
}

func newInspector(t testing.TB, client *clientv3.Client, cfg *etcd.Config) *Inspector {
	t.Helper()
	i, err := New(client, cfg.Prefix, 20*time.Second)
	require.NoError(t, err)
	return i
}

func newLocker(t testing.TB, client *clientv3.Client, cfg *etcd.Config) *etcd.Locker {
	t.Helper()
	l, err := etcd.New(client, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func acquire(t testing.TB, l *etcd.Locker, resource string) fence.Lease {
	t.Helper()
	le, err := l.Acquire(patient(t), resource)
	require.NoError(t, err)
	return le
}

// acquiring acquires in another goroutine; nil stands for an error.
func acquiring(ctx context.Context, l *etcd.Locker, resource string) <-chan fence.Lease {
	done := make(chan fence.Lease, 1)
	go func() {
		le, _ := l.Acquire(ctx, resource)
		done <- le
	}()
	return done
}

func release(t testing.TB, le fence.Lease) {
	t.Helper()
	require.NoError(t, le.Release(patient(t)))
}

func keyOf(le fence.Lease) string { return le.(interface{ Key() string }).Key() }

// An Inspector reads the number that grants get, and says of a key that holds none where it is.
func TestInspector_ReadsTheEpoch(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i := newInspector(t, client, cfg)
	e, err := i.Epoch(patient(t))
	require.NoError(t, err)
	require.Equal(t, Epoch{Number: 1, Key: cfg.Prefix + "/epoch", Revision: e.Revision, ClusterID: e.ClusterID}, e)
	for text, number := range map[string]int64{"7": 7, "seven": 0} {
		put, err := client.Put(patient(t), e.Key, text)
		require.NoError(t, err)
		now, err := i.Epoch(patient(t))
		if number == 0 {
			requireReason(t, err, fence.InvalidEpoch)
		} else {
			require.NoError(t, err)
			require.EqualValues(t, number, acquire(t, newLocker(t, client, cfg), "r").Grant().Epoch)
		}
		require.Equal(t, number, now.Number)
		require.Equal(t, put.Header.Revision, now.KeyRevision)
		require.GreaterOrEqual(t, now.Revision, now.KeyRevision)
		require.Equal(t, e.ClusterID, now.ClusterID)
	}
}

// The key is put only if it is as it was seen: also one that holds the same number again, or none that can be read.
func TestPutEpoch_OnlyOverWhatWasSeen(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i := newInspector(t, client, cfg)
	read := func() Epoch {
		e, err := i.Epoch(patient(t))
		require.NoError(t, err)
		return e
	}
	puts := func(want bool, seen Epoch, number int64, dryRun bool) {
		t.Helper()
		done, err := i.PutEpoch(patient(t), seen, number, dryRun)
		require.NoError(t, err)
		require.Equal(t, want, done)
	}
	byHand := func(text string) {
		_, err := client.Put(patient(t), cfg.Prefix+"/epoch", text)
		require.NoError(t, err)
	}
	none := read()
	puts(false, none, 2, true)
	require.Zero(t, read().KeyRevision, "a dry run")
	puts(true, none, 2, false)
	puts(false, none, 3, false)
	two := read()
	require.EqualValues(t, 2, two.Number)
	byHand("2")
	puts(false, two, 3, false)
	byHand("two")
	unreadable, err := i.Epoch(patient(t))
	require.Error(t, err)
	puts(true, unreadable, 7, false)
	require.EqualValues(t, 7, read().Number)

	other := read()
	other.ClusterID++
	_, err = i.PutEpoch(patient(t), other, 8, false)
	requireReason(t, err, fence.WentBack)
	restored := read()
	restored.Revision += 1000
	_, err = i.PutEpoch(patient(t), restored, 9, false)
	requireReason(t, err, fence.WentBack)
}

func requireReason(t testing.TB, err error, reason fence.UnavailableReason) {
	t.Helper()
	away := new(fence.UnavailableError)
	require.ErrorAs(t, err, &away)
	require.Equal(t, reason, away.Reason, err)
}

func TestEvict_PassesTheLockOn(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i := newInspector(t, client, cfg)
	a, b := newLocker(t, client, cfg), newLocker(t, client, cfg)
	held, other := acquire(t, a, "sku/42"), acquire(t, a, "other")
	held.AfterContended(func() {})
	waiting := acquiring(patient(t), b, "sku/42")
	awaitKeys(t, client, i.cluster.Keys.Queue("sku/42"), 2)

	done, err := i.Evict(patient(t), "sku/42", held.Grant().Token, "it hangs", "me@here")
	require.NoError(t, err)
	require.Equal(t, held.Grant(), done.Grant)
	next := etcdtest.Receive(t, waiting)
	require.NotNil(t, next)
	require.Greater(t, next.Grant().Token, held.Grant().Token)
	etcdtest.Receive(t, held.Done())
	loss := new(fence.LeaseLostError)
	require.ErrorAs(t, held.Err(), &loss)
	require.Equal(t, fence.LossDeleted, loss.Reason)
	require.NoError(t, other.Err(), "its other locks stay")

	all, err := i.Evictions(patient(t))
	require.NoError(t, err)
	require.Equal(t, []Eviction{done}, all)
	require.Equal(t, "it hangs", done.Reason)
	require.Equal(t, "me@here", done.By)
	require.WithinDuration(t, time.Now(), done.At, time.Minute)
	record, err := client.Get(patient(t), i.cluster.Keys.Evictions(), clientv3.WithPrefix())
	require.NoError(t, err)
	left, err := i.timeToLive(patient(t), record.Kvs[0].Lease)
	require.NoError(t, err)
	require.InDelta(t, locks.EvictionKept.Seconds(), float64(left), 60)

	release(t, next)
	require.Greater(t, acquire(t, a, "sku/42").Grant().Token, next.Grant().Token)
}

// The holder has passed the lock on after it was read, and before the transaction: neither the
// waiter's key nor a later one of the same name is deleted.
func TestEvict_OfAHolderThatHasGoneChangesNothing(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i, l := newInspector(t, client, cfg), newLocker(t, client, cfg)
	queue := i.cluster.Keys.Queue("r")
	requireNotEvicted := func(a Acquisition, keys int) {
		t.Helper()
		evicted, err := i.evict(patient(t), a, Eviction{Grant: a.Grant, Reason: "it hangs"})
		require.NoError(t, err)
		require.False(t, evicted)
		awaitKeys(t, client, queue, keys)
	}
	held := acquire(t, l, "r")
	seen, err := i.Lock(patient(t), "r")
	require.NoError(t, err)
	release(t, held)
	awaitKeys(t, client, queue, 0)
	again := acquire(t, l, "r")
	require.Equal(t, keyOf(held), keyOf(again))
	requireNotEvicted(seen.Queue[0], 1)

	_, err = client.Put(patient(t), queue+"0-1", "of no locker")
	require.NoError(t, err)
	waiter := Acquisition{Grant: again.Grant(), Key: queue + "0-1"}
	waiter.Grant.Token = fence.Token(awaitKeys(t, client, queue, 2)[1].CreateRevision)
	requireNotEvicted(waiter, 2)
}
