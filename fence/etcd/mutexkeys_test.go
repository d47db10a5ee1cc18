package etcd

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func mutexKeys(t testing.TB) (*Config, string) {
	cfg := fresh(t)
	cfg.MutexKeys = true
	return cfg, "lock-" + cfg.Prefix
}

// As with etcd's own Mutex: names are not escaped, and the range of a name's keys includes those of longer names. A
// holder of "a/b" can't see the waiters for "a", so it always counts as contended.
func TestMutexKeys_ANameWaitsForTheLongerOnes(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	a, b := newTestLocker(t, etcdserver.Client(t), cfg), newTestLocker(t, etcdserver.Client(t), cfg)
	longer := acquire(t, a, name+"/b")
	requireContended(t, longer)
	_, err := b.TryAcquire(patient(t), name)
	require.ErrorIs(t, err, fence.ErrLocked)
	waiting := acquiring(patient(t), b, name)
	awaitKeys(t, a.cluster.Client, name, 2)
	require.Empty(t, waiting)
	release(t, longer)
	shorter := granted(t, waiting)
	require.True(t, shorter.AfterContended(func() {})(), "nobody waits for it")
	release(t, acquire(t, a, name+"/b")) // not the other way round
}

func TestMutexKeys_RejectNamesThatCollideWithOurOwnKeys(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), &Config{Prefix: "our/own", MutexKeys: true})
	for _, name := range []string{"our", "our/own", "our/own/void", "our/own/locks/r", ""} {
		_, err := l.Acquire(patient(t), name)
		require.ErrorAs(t, err, new(*fence.InvalidGrantError), name)
		_, err = l.Election(name)
		require.ErrorAs(t, err, new(*fence.InvalidGrantError), name)
	}
	for _, name := range []string{"ours", "our/owner", "ou"} {
		release(t, acquire(t, l, name+rand.Text()))
	}
}

// The next acquisition of a session writes the same key, so it waits until that is known to be gone.
func TestMutexKeys_TheNextAcquisitionWaitsForTheRelease(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	came, proceed := make(chan struct{}, 10), make(chan struct{})
	l := newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(), etcdtest.OnTxn(func(ctx context.Context, txn *pb.TxnRequest, send func() error) error {
		if etcdtest.Deletes(txn) {
			came <- struct{}{}
			select {
			case <-proceed:
			case <-ctx.Done():
			}
		}
		return send()
	})), cfg)
	released := releasing(patient(t), acquire(t, l, name))
	etcdtest.Receive(t, came)
	_, err := l.TryAcquire(patient(t), name)
	require.ErrorIs(t, err, fence.ErrLocked)
	close(proceed)
	require.NoError(t, etcdtest.Receive(t, released))
	release(t, acquire(t, l, name))
}

// newSession returns a session of etcd's own tools: "etcdctl lock" is a concurrency.Mutex, "etcdctl elect" a
// concurrency.Election.
func newSession(t testing.TB, client *clientv3.Client) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mutex(t testing.TB, client *clientv3.Client, name string) *concurrency.Mutex {
	t.Helper()
	return concurrency.NewMutex(newSession(t, client), name)
}

func TestMutexKeys_OneQueueWithEtcdsOwnTools(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	cfg, name := mutexKeys(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, etcdserver.Client(t), cfg)
	first := mutex(t, client, name)
	require.NoError(t, first.Lock(patient(t)))
	_, err := a.TryAcquire(patient(t), name)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, fence.LockedError{Resource: name}, *locked, "a Mutex leaves no name")

	second := queued(t, a, name, 2)
	third, thirdHolds := mutex(t, client, name), make(chan error, 1)
	go func() { thirdHolds <- third.Lock(patient(t)) }()
	awaitKeys(t, client, name, 3)
	fourth := acquiring(patient(t), b, name)
	kvs := awaitKeys(t, client, name, 4)
	require.Empty(t, second)
	require.NoError(t, first.Unlock(patient(t)))
	got := granted(t, second)
	require.EqualValues(t, kvs[1].CreateRevision, got.Grant().Token)
	requireContended(t, got)
	require.Empty(t, thirdHolds)
	release(t, got)
	require.NoError(t, <-thirdHolds)
	require.ErrorIs(t, mutex(t, client, name).TryLock(patient(t)), concurrency.ErrLocked)
	require.Empty(t, fourth)
	require.NoError(t, third.Unlock(patient(t)))
	release(t, granted(t, fourth))

	ours, theirs := election(t, b, name), concurrency.NewElection(newSession(t, client), name)
	led := campaign(t, ours, "ours")
	seen, err := theirs.Leader(patient(t))
	require.NoError(t, err)
	require.Equal(t, "ours", string(seen.Kvs[0].Value))
	require.NoError(t, led.Resign(patient(t)))
	require.NoError(t, theirs.Campaign(patient(t), "theirs"))
	leader, err := ours.Leader(patient(t))
	require.NoError(t, err)
	require.Equal(t, fence.Leader{Grant: fence.Grant{Resource: name, Token: fence.Token(theirs.Rev())}, Value: "theirs"}, leader)
	require.NoError(t, theirs.Resign(patient(t)))
}
