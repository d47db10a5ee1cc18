package etcd

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
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

// A holder that registered AfterContended earlier learns of an etcdctl that waits.
func TestMutexKeys_TheHolderHearsOfAWaitingEtcdctl(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	held := acquire(t, newTestLocker(t, etcdserver.Client(t), cfg), name)
	contended := make(chan struct{})
	held.AfterContended(func() { close(contended) })
	waiting := runEtcdctl(t, "lock", "--ttl=60", name)
	<-contended
	require.Empty(t, waiting.lines)
	release(t, held)
	waiting.awaitHeld(t, name)
	waiting.end(t)
}

func TestMutexKeys_AKilledEtcdctlHoldsUntilItsLeaseExpires(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	l := newTestLocker(t, etcdserver.Client(t), cfg)
	holder := runEtcdctl(t, "lock", "--ttl=2", name)
	holder.awaitHeld(t, name)
	waiting := acquiring(patient(t), l, name)
	kvs := awaitKeys(t, l.cluster.Client, name, 2)
	require.NoError(t, holder.cmd.Process.Kill())
	_ = holder.awaitEnd() // says that it was killed
	got := <-waiting
	require.NoError(t, got.err)
	ttl, err := l.cluster.Client.TimeToLive(patient(t), clientv3.LeaseID(kvs[0].Lease))
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl.TTL, "its lease is over")
}

// All of them read and then write a counter in etcd, which loses an update whenever two
// hold the lock.
func TestMutexKeys_AStormOfAllKindsLosesNoUpdate(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	cfg, name := mutexKeys(t)
	counter := "counter-" + name
	_, err := client.Put(t.Context(), counter, "0")
	require.NoError(t, err)
	var all sync.WaitGroup
	times := func(n int, f func() error) {
		all.Go(func() {
			for range n {
				if err := f(); !holds(t, err == nil, "%v", err) {
					return
				}
			}
		})
	}
	ctx := patient(t)
	for range 2 {
		l := newTestLocker(t, etcdserver.Client(t), cfg)
		for range 2 {
			times(10, func() error {
				le, err := l.Acquire(ctx, name)
				if err != nil {
					return err
				}
				if err := countUp(ctx, client, counter); err != nil {
					return err
				}
				return le.Release(ctx)
			})
		}
		m := mutex(t, client, name)
		times(10, func() error {
			if err := m.Lock(ctx); err != nil {
				return err
			}
			if err := countUp(ctx, client, counter); err != nil {
				return err
			}
			return m.Unlock(ctx)
		})
		times(5, func() error {
			cmd := etcdserver.Etcdctl(t, etcdserver.Shared(t), "lock", "--ttl=60", "--", name,
				"sh", "-c", `set -e; n=$("$ETCDCTL" get --print-value-only "$0"); "$ETCDCTL" put "$0" $((n + 1))`, counter)
			cmd.Env = append(cmd.Env, "ETCDCTL="+cmd.Path)
			return cmd.Run()
		})
	}
	all.Wait()
	resp, err := client.Get(t.Context(), counter)
	require.NoError(t, err)
	require.Equal(t, "70", string(resp.Kvs[0].Value))
	awaitKeys(t, client, name, 0)
}

func countUp(ctx context.Context, client *clientv3.Client, key string) error {
	resp, err := client.Get(ctx, key)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(resp.Kvs[0].Value))
	if err != nil {
		return err
	}
	_, err = client.Put(ctx, key, strconv.Itoa(n+1))
	return err
}

// etcd's own elections campaign in the same queue, and their leader is seen here.
func TestMutexKeys_OneElectionWithEtcdctl(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	cfg, name := mutexKeys(t)
	e := election(t, newTestLocker(t, client, cfg), name)
	seen := observe(t, e)
	require.Equal(t, sight{fence.Leader{}, fence.ErrNoLeader}, seen.next())
	theirs := runEtcdctl(t, "elect", name, `{"port": 80}`)
	theirs.awaitHeld(t, name)
	waiting := campaigning(patient(t), e, "ours")
	kvs := awaitKeys(t, client, name, 2)
	want := fence.Leader{Grant: fence.Grant{Resource: name, Token: fence.Token(kvs[0].CreateRevision)}, Value: `{"port": 80}`}
	require.Equal(t, sight{want, nil}, seen.next())
	require.Error(t, want.Grant.Validate(), "it is no grant to act under")
	theirs.end(t)
	led := (<-waiting).led
	ours := fence.Grant{Resource: name, Token: led.Grant().Token}
	require.Equal(t, sight{fence.Leader{Grant: ours, Value: "ours"}, nil}, seen.next())
	theirs = runEtcdctl(t, "elect", name, "again")
	awaitKeys(t, client, name, 2)
	require.NoError(t, led.Proclaim(patient(t), "still ours"))
	seen.until(fence.Leader{Grant: ours, Value: "still ours"})
	require.Empty(t, theirs.lines)
	require.NoError(t, led.Resign(patient(t)))
	theirs.awaitHeld(t, name)
}

// etcd's own Leader and Observe, and "etcdctl elect --listen", show the values that are
// proclaimed here.
func TestMutexKeys_EtcdsOwnObserversSeeWhatIsProclaimed(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	cfg, name := mutexKeys(t)
	ours := election(t, newTestLocker(t, client, cfg), name)
	led := campaign(t, ours, "first")
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	theirs := concurrency.NewElection(session, name)
	listening := runEtcdctl(t, "elect", "--listen", name) // the first one builds it
	observed := theirs.Observe(patient(t))
	for _, value := range []string{"first", `{"holder": "app"}`, ""} {
		if value != "first" {
			require.NoError(t, led.Proclaim(patient(t), value))
		}
		resp, err := theirs.Leader(patient(t))
		require.NoError(t, err)
		require.Equal(t, value, string(resp.Kvs[0].Value))
		require.EqualValues(t, led.Grant().Token, resp.Kvs[0].CreateRevision)
		shown := etcdtest.Receive(t, observed)
		require.Equal(t, value, string(shown.Kvs[0].Value))
		require.Equal(t, fmt.Sprintf("%s/%x", name, ours.locker.sessions.Current().ID), etcdtest.Receive(t, listening.lines))
		require.Equal(t, value, etcdtest.Receive(t, listening.lines))
		got, err := ours.Leader(patient(t))
		require.NoError(t, err)
		require.Equal(t, fence.Leader{Grant: fence.Grant{Resource: name, Token: led.Grant().Token}, Value: value}, got)
	}
	require.NoError(t, led.Resign(patient(t)))
	require.NoError(t, theirs.Campaign(patient(t), "theirs"))
	got, err := ours.Leader(patient(t))
	require.NoError(t, err)
	require.Equal(t, "theirs", got.Value)
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
