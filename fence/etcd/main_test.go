package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Names that most lines of these tests need.
var (
	patient   = etcdtest.Patient
	dial      = etcdtest.Dial
	awaitKeys = etcdtest.AwaitKeys
)

// fresh returns a config whose prefix is the test's own. Its waiters don't poll, so they
// depend on the watch.
func fresh(t testing.TB) *Config {
	return &Config{Prefix: t.Name() + "-" + rand.Text(), TTL: 30 * time.Second, RequestTimeout: 20 * time.Second, pollInterval: time.Hour}
}

// newTestLocker returns a locker that is closed with the test.
func newTestLocker(t testing.TB, client *clientv3.Client, cfg *Config) *Locker {
	t.Helper()
	l, err := NewLocker(client, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx) // some tests leave etcd unreachable
	})
	return l
}

// ownEtcd starts an etcd that the test may pause and kill.
func ownEtcd(t testing.TB) *etcdserver.Server {
	t.Helper()
	return startEtcd(t, nil)
}

func startEtcd(t testing.TB, cfg *etcdserver.Config) *etcdserver.Server {
	t.Helper()
	e, err := etcdserver.Start(patient(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), etcdtest.Patience)
		defer cancel()
		require.NoError(t, e.Stop(ctx))
	})
	return e
}

func acquire(t testing.TB, l *Locker, resource string) fence.Lease {
	t.Helper()
	le, err := l.Acquire(patient(t), resource)
	require.NoError(t, err)
	return le
}

// acquireAtLast acquires under a RequestTimeout that a slow machine may not keep.
func acquireAtLast(t testing.TB, l *Locker, resource string) fence.Lease {
	t.Helper()
	for {
		le, err := l.Acquire(patient(t), resource)
		if err == nil {
			return le
		}
		require.ErrorIs(t, err, fence.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
}

func release(t testing.TB, le fence.Lease) {
	t.Helper()
	require.NoError(t, le.Release(patient(t)))
}

// result is the result of an Acquire in another goroutine.
type result struct {
	lease fence.Lease
	err   error
}

func acquiring(ctx context.Context, l *Locker, resource string) <-chan result {
	done := make(chan result, 1)
	go func() {
		le, err := l.Acquire(ctx, resource)
		done <- result{le, err}
	}()
	return done
}

// lossOf waits for the end of a lease and returns why it was lost.
func lossOf(t testing.TB, le fence.Lease) fence.LossReason {
	t.Helper()
	select {
	case <-le.Done():
	case <-patient(t).Done():
		require.FailNow(t, "the lease is not lost")
	}
	loss := new(fence.LeaseLostError)
	require.ErrorAs(t, context.Cause(le.Context()), &loss)
	require.Equal(t, le.Grant(), loss.Grant)
	require.Zero(t, le.Remaining())
	require.NoError(t, le.Release(patient(t)), "releasing a lost lease is no error")
	return loss.Reason
}

// awaitWatching waits until the acquisition that waits in l knows its queue: its
// Txn was answered and its watch and list are there.
func awaitWatching(t testing.TB, l *Locker, resource string) {
	t.Helper()
	p := l.queues.Current(resource)
	known := make(chan struct{})
	p.AfterContended(func() { close(known) }) // the holder is the other one
	select {
	case <-known:
	case <-patient(t).Done():
		require.FailNow(t, "the waiter never saw the holder")
	}
}

// keyOf is the key of a lease.
func keyOf(le fence.Lease) string { return le.(interface{ Key() string }).Key() }

// renews renews the session of l now, and reports whether that succeeded.
func renews(t testing.TB, l *Locker) bool {
	t.Helper()
	s, done := l.sessions.Current(), make(chan struct{})
	s.RenewNow(func() { close(done) })
	etcdtest.Receive(t, done)
	return s.LastFailure() == nil
}

// because reports whether an error, or one that it wraps, has a reason.
func because(err error, reason fence.UnavailableReason) bool {
	for away := (*fence.UnavailableError)(nil); errors.As(err, &away); err = away.Err {
		if away.Reason == reason {
			return true
		}
	}
	return false
}

func requireReason(t testing.TB, err error, reason fence.UnavailableReason) {
	t.Helper()
	require.True(t, because(err, reason), "%v, want %q", err, reason)
}

// inDoubt reports whether an error says that the failed call may still take effect.
func inDoubt(err error) bool {
	away := new(fence.UnavailableError)
	return errors.As(err, &away) && away.InDoubt
}
