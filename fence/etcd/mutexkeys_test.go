package etcd

import (
	"bufio"
	"crypto/rand"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
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

// As with etcd's own Mutex: names are not escaped, and the range of a name's keys includes
// those of longer names.
func TestMutexKeys_ANameWaitsForTheLongerOnes(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	a, b := newTestLocker(t, etcdserver.Client(t), cfg), newTestLocker(t, etcdserver.Client(t), cfg)
	longer := acquire(t, a, name+"/b")
	_, err := b.TryAcquire(patient(t), name)
	require.ErrorIs(t, err, fence.ErrLocked)
	waiting := acquiring(patient(t), b, name)
	awaitKeys(t, a.cluster.Client, name, 2)
	require.Empty(t, waiting)
	release(t, longer)
	require.NoError(t, (<-waiting).err)
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

// A session has one key per resource for all its goroutines: the queue in this process
// keeps two from sharing it.
func TestMutexKeys_GoroutinesShareNoToken(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	l := newTestLocker(t, etcdserver.Client(t), cfg)
	grants, done := make(chan fence.Grant, 100), make(chan struct{})
	inside := make(chan struct{}, 1)
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 5 {
				le, err := l.Acquire(patient(t), name)
				if !holds(t, err == nil, "acquire: %v", err) {
					return
				}
				select {
				case inside <- struct{}{}:
				default:
					t.Error("two hold the lock")
				}
				grants <- le.Grant()
				<-inside
				err = le.Release(patient(t))
				holds(t, err == nil, "release: %v", err)
			}
		}()
	}
	for range 8 {
		<-done
	}
	close(grants)
	last, holders := fence.Grant{}, map[string]bool{}
	for g := range grants {
		require.Positive(t, g.Compare(last))
		require.False(t, holders[g.Holder])
		holders[g.Holder], last = true, g
	}
	require.Len(t, holders, 40)
	awaitKeys(t, l.cluster.Client, name, 0)
}

// The next acquisition of a session writes the same key: late requests of an earlier one
// must not touch it.
func TestMutexKeys_LateRequestsLeaveTheNextAcquisitionAlone(t *testing.T) {
	t.Parallel()
	cfg, name := mutexKeys(t)
	acquires := func(txn *pb.TxnRequest) bool { return etcdtest.Puts(txn, name) && len(txn.Compare) > 1 }
	for what, match := range map[string]func(*pb.TxnRequest) bool{
		"release":  etcdtest.Deletes,
		"void":     func(txn *pb.TxnRequest) bool { return etcdtest.Puts(txn, cfg.Prefix+"/void/") },
		"acquire":  acquires,
		"proclaim": isProclaim,
	} {
		t.Run(what, func(t *testing.T) {
			late, lost := etcdtest.NewLateTxn(match), etcdtest.NewLateTxn(acquires)
			l := newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(),
				grpc.WithChainUnaryInterceptor(late.Intercept, lost.Intercept)), cfg)
			kept := acquire(t, l, "kept-"+name)
			led := campaign(t, election(t, l, name), "first")
			key := keyOf(led)
			late.Arm()
			var failed <-chan result
			var unproclaimed <-chan error
			switch what {
			case "proclaim":
				unproclaimed = proclaiming(patient(t), led, "late")
			case "acquire":
				release(t, led)
				failed = acquiring(patient(t), l, name)
			case "void": // of an acquisition that never arrives
				release(t, led)
				lost.Arm()
				failed = acquiring(patient(t), l, name)
			case "release":
				go func() { _ = led.Release(t.Context()) }()
			}
			deliver := late.Kept(t)
			if unproclaimed != nil {
				require.True(t, isInDoubt(<-unproclaimed))
				release(t, led)
			}
			if failed != nil {
				require.ErrorIs(t, (<-failed).err, fence.ErrUnavailable)
			}
			second := acquire(t, l, name)
			require.Equal(t, key, keyOf(second), "or this shows nothing")
			require.NotNil(t, deliver())
			kvs := awaitKeys(t, l.cluster.Client, name, 1)
			require.EqualValues(t, second.Grant().Token, kvs[0].CreateRevision)
			require.Equal(t, second.Grant().Holder, cluster.HolderIn(kvs[0].Value))
			require.NoError(t, kept.Context().Err())
			require.NoError(t, second.Context().Err())
			release(t, second)
		})
	}
}

// The watch of a lease that was lost shows the key of its successor.
func TestMutexKeys_ADeletedKeyIsNotTakenForTheNext(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	cfg, name := mutexKeys(t)
	l := newTestLocker(t, client, cfg)
	for range 5 {
		lost := acquire(t, l, name)
		_, err := client.Txn(patient(t)).Then(clientv3.OpDelete(keyOf(lost))).Commit()
		require.NoError(t, err)
		next := acquire(t, l, name)
		require.Equal(t, fence.LossDeleted, lossOf(t, lost))
		require.Equal(t, keyOf(lost), keyOf(next))
		require.Greater(t, next.Grant().Token, lost.Grant().Token)
		require.NoError(t, next.Context().Err())
		release(t, next)
	}
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
