package etcd

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

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
	got := <-second
	require.NoError(t, got.err)
	require.EqualValues(t, kvs[1].CreateRevision, got.lease.Grant().Token)
	requireContended(t, got.lease)
	require.Empty(t, thirdHolds)
	release(t, got.lease)
	require.NoError(t, <-thirdHolds)
	require.ErrorIs(t, mutex(t, client, name).TryLock(patient(t)), concurrency.ErrLocked)
	require.Empty(t, fourth)
	require.NoError(t, third.Unlock(patient(t)))
	got = <-fourth
	require.NoError(t, got.err)
	requireContended(t, got.lease)
	require.Empty(t, fifth.lines)
	release(t, got.lease)
	fifth.awaitHeld(t, name)
	fifth.end(t)
	got.lease, err = a.TryAcquire(patient(t), name)
	require.NoError(t, err)
	release(t, got.lease)
}

func requireContended(t testing.TB, le fence.Lease) {
	t.Helper()
	contended := make(chan struct{})
	le.AfterContended(func() { close(contended) })
	select {
	case <-contended:
	case <-patient(t).Done():
		require.FailNow(t, "AfterContended did not call")
	}
}

// A holder of "a/b" can't see the waiters for "a", so it always counts as contended.
func TestMutexKeys_ALongerNameCountsAsContended(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	l := newTestLocker(t, etcdserver.Client(t), cfg)
	for resource, want := range map[string]bool{name: false, name + "/b": true} {
		held := acquire(t, l, resource)
		stop := held.AfterContended(func() {})
		require.NotEqual(t, want, stop(), resource)
		release(t, held)
	}
}
