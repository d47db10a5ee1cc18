package etcd

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/queue"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// N8 (i): when the lock was contended, the revision that etcd's own mutex reports is not
// the key's create revision but that of a later read.
func TestAcquire_TheTokenIsTheCreateRevision(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 2)
	other := acquire(t, a, "another") // so that the revision rises
	release(t, held)
	got := <-waiting
	require.NoError(t, got.err)
	kvs := awaitKeys(t, client, a.cluster.Keys.Queue("r"), 1)
	require.EqualValues(t, kvs[0].CreateRevision, got.lease.Grant().Token)
	require.Equal(t, got.lease.Grant().Holder, keys.HolderIn(kvs[0].Value))
	kvs = awaitKeys(t, client, a.cluster.Keys.Queue("another"), 1)
	require.EqualValues(t, kvs[0].CreateRevision, other.Grant().Token)
}

// N8 (ii): goroutines of one process don't share a key, a token or the lock.
func TestAcquire_GoroutinesExcludeEachOther(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	lockers := []*Locker{newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)}
	var (
		running sync.WaitGroup
		holding sync.Mutex // TryLock only: the lock under test has to exclude
		mu      sync.Mutex
		grants  []fence.Grant
	)
	for i := range 16 {
		running.Go(func() {
			le, err := lockers[i%2].Acquire(patient(t), "r")
			if !holds(t, err == nil, "acquire: %v", err) {
				return
			}
			holds(t, holding.TryLock(), "two hold the lock")
			mu.Lock()
			grants = append(grants, le.Grant())
			mu.Unlock()
			holding.Unlock()
			err = le.Release(patient(t))
			holds(t, err == nil, "release: %v", err)
		})
	}
	running.Wait()
	require.Len(t, grants, 16)
	holders := map[string]bool{}
	for i, g := range grants {
		require.False(t, holders[g.Holder])
		holders[g.Holder] = true
		require.True(t, i == 0 || grants[i-1].Token < g.Token)
	}
}

// holds may be called from any goroutine.
func holds(t testing.TB, ok bool, format string, args ...any) bool {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
	return ok
}

func TestAcquire_ServesLockersInOrderOfArrival(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	held := acquire(t, newTestLocker(t, client, cfg), "r")
	order := make(chan int, 5)
	var running sync.WaitGroup
	defer running.Wait()
	for i := range 5 {
		l := newTestLocker(t, client, cfg)
		running.Go(func() {
			le, err := l.Acquire(patient(t), "r")
			if holds(t, err == nil, "acquire: %v", err) {
				order <- i
				err = le.Release(patient(t))
				holds(t, err == nil, "release: %v", err)
			}
		})
		awaitKeys(t, client, l.cluster.Keys.Queue("r"), i+2)
	}
	require.Empty(t, order)
	release(t, held)
	for i := range 5 {
		require.Equal(t, i, etcdtest.Receive(t, order), "the number of the Locker whose turn is number %d", i)
	}
}

func TestTryAcquire_NamesTheHolderAndWritesNothing(t *testing.T) {
	t.Parallel()
	etcd := ownEtcd(t) // of its own, so that nothing else moves the revision
	client, cfg := dial(t, etcd.Endpoint()), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	release(t, acquire(t, b, "warm"))
	le, err := a.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	before, err := client.Get(patient(t), "x")
	require.NoError(t, err)
	for _, l := range []*Locker{a, b} {
		_, err = l.TryAcquire(patient(t), "r")
		require.ErrorIs(t, err, fence.ErrLocked)
		locked := new(fence.LockedError)
		require.ErrorAs(t, err, &locked)
		require.Equal(t, fence.LockedError{Resource: "r", Holder: le.Grant().Holder}, *locked)
	}
	after, err := client.Get(patient(t), "x")
	require.NoError(t, err)
	require.Equal(t, before.Header.Revision, after.Header.Revision)
	release(t, le)
	le, err = b.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	release(t, le)
}

func TestAcquire_FailsAtOnceWhenTheSessionEndsWhileItsTxnIsUnderWay(t *testing.T) {
	t.Parallel()
	etcd := etcdserver.Shared(t)
	p := newProxy(t, etcd.Endpoint())
	cfg := fresh(t)
	cfg.RequestTimeout = time.Hour
	l, admin := newTestLocker(t, dial(t, p.endpoint()), cfg), dial(t, etcd.Endpoint())
	release(t, acquire(t, l, "warm"))
	p.set(func() { p.muted = true })
	waiting := acquiring(patient(t), l, "r")
	awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 1)
	l.sessions.Current().End(fence.LossDeadline)
	lost := new(queue.LostError)
	require.ErrorAs(t, (<-waiting).err, &lost, "while etcd's answers are held back")
	require.Equal(t, queue.LostError{Resource: "r", Reason: fence.LossDeadline}, *lost)
	var again interface{ Retryable() bool }
	require.ErrorAs(t, lost, &again)
	require.True(t, again.Retryable(), "guard.Retryable queues anew")
	p.set(func() { p.muted = false })
}
