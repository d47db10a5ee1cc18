package etcd

import (
	"bufio"
	"context"
	"crypto/rand"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// mutexKeys returns a config with etcd's own keys, and a name that no other test
// uses.
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

// toolRun is an "etcdctl lock" or "etcdctl elect" that runs until the test ends it.
type toolRun struct {
	cmd   *exec.Cmd
	lines chan string // what it prints, closed at its end
}

func runEtcdctl(t testing.TB, args ...string) *toolRun {
	t.Helper()
	r := &toolRun{etcdserver.Etcdctl(t, etcdserver.Shared(t), args...), make(chan string, 100)}
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	go func() {
		defer close(r.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			r.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		r.awaitEnd()
	})
	return r
}

// awaitHeld waits until it holds the lock: it then prints its key.
func (r *toolRun) awaitHeld(t testing.TB, name string) {
	t.Helper()
	select {
	case line := <-r.lines:
		require.True(t, strings.HasPrefix(line, name+"/"), "etcdctl says %q", line)
	case <-patient(t).Done():
		require.FailNow(t, "etcdctl never got the lock")
	}
}

// end makes it release the lock, as a user's Ctrl-C does.
func (r *toolRun) end(t testing.TB) {
	t.Helper()
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, r.awaitEnd())
}

func (r *toolRun) awaitEnd() error {
	for range r.lines { // Wait closes the pipe, so it comes last
	}
	return r.cmd.Wait()
}

func mutex(t testing.TB, client *clientv3.Client, name string) *concurrency.Mutex {
	t.Helper()
	s, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return concurrency.NewMutex(s, name)
}

// A holder here, "etcdctl lock" and concurrency.Mutex wait for each other, in one
// queue.
func TestMutexKeys_OneQueueWithEtcdctlAndMutex(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	cfg, name := mutexKeys(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, etcdserver.Client(t), cfg)

	first := runEtcdctl(t, "lock", "--ttl=60", name)
	first.awaitHeld(t, name)
	_, err := a.TryAcquire(patient(t), name)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, fence.LockedError{Resource: name}, *locked, "etcdctl leaves no name")

	second := acquiring(patient(t), a, name)
	awaitKeys(t, client, name, 2)
	third, thirdHolds := mutex(t, client, name), make(chan error, 1)
	go func() { thirdHolds <- third.Lock(patient(t)) }()
	awaitKeys(t, client, name, 3)
	fourth := acquiring(patient(t), b, name)
	awaitKeys(t, client, name, 4)
	fifth := runEtcdctl(t, "lock", "--ttl=60", name)
	kvs := awaitKeys(t, client, name, 5)
	require.Empty(t, second)

	first.end(t)
	got := granted(t, second)
	require.EqualValues(t, kvs[1].CreateRevision, got.Grant().Token)
	requireContended(t, got)
	require.Empty(t, thirdHolds)
	release(t, got)
	require.NoError(t, <-thirdHolds)
	require.ErrorIs(t, mutex(t, client, name).TryLock(patient(t)), concurrency.ErrLocked)
	require.Empty(t, fourth)
	require.NoError(t, third.Unlock(patient(t)))
	got = granted(t, fourth)
	requireContended(t, got)
	require.Empty(t, fifth.lines)
	release(t, got)
	fifth.awaitHeld(t, name)
	fifth.end(t)
	last, err := a.TryAcquire(patient(t), name)
	require.NoError(t, err)
	release(t, last)
}
