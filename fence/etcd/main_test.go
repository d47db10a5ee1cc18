package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Names that most lines of these tests need.
var (
	patient   = etcdtest.Patient
	dial      = etcdtest.Dial
	awaitKeys = etcdtest.AwaitKeys
)

// fresh returns a config whose prefix is the test's own. Its waiters don't poll, so they depend on the watch, and
// no request ends while a test waits for it.
func fresh(t testing.TB) *Config {
	return &Config{Prefix: t.Name() + "-" + rand.Text(), TTL: etcdtest.Patience, requestTimeout: etcdtest.Patience, pollInterval: time.Hour}
}

func newTestLocker(t testing.TB, client *clientv3.Client, cfg *Config) *Locker {
	t.Helper()
	l, err := New(client, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx) // some tests leave etcd unreachable
	})
	return l
}

func locker(t testing.TB, opts ...grpc.DialOption) (*Locker, *clientv3.Client) {
	t.Helper()
	client := dial(t, etcdserver.Shared(t).Endpoint(), opts...)
	return newTestLocker(t, client, fresh(t)), client
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
	stopAtEnd(t, e)
	return e
}

func stopAtEnd(t testing.TB, server interface{ Stop(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), etcdtest.Patience)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
}

func acquire(t testing.TB, l *Locker, resource string) *position {
	t.Helper()
	le, err := l.Acquire(patient(t), resource)
	require.NoError(t, err)
	return le.(*position)
}

// acquireAtLast acquires under a requestTimeout that a slow machine may not keep.
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

type result struct {
	lease *position
	err   error
}

func acquiring(ctx context.Context, l *Locker, resource string) <-chan result {
	done := make(chan result, 1)
	go func() {
		le, err := l.Acquire(ctx, resource)
		p, _ := le.(*position)
		done <- result{p, err}
	}()
	return done
}

func granted(t testing.TB, acquiring <-chan result) *position {
	t.Helper()
	got := etcdtest.Receive(t, acquiring)
	require.NoError(t, got.err)
	return got.lease
}

func queued(t testing.TB, l *Locker, resource string, n int) <-chan result {
	t.Helper()
	done := acquiring(patient(t), l, resource)
	awaitKeys(t, l.cluster.Client, l.cluster.Keys.Queue(resource), n)
	return done
}

func requireContended(t testing.TB, le fence.Lease) {
	t.Helper()
	contended := make(chan struct{})
	le.AfterContended(func() { close(contended) })
	etcdtest.Receive(t, contended)
}

func lossOf(t testing.TB, le fence.Lease) fence.LossReason {
	t.Helper()
	etcdtest.Receive(t, le.Done())
	loss := new(fence.LeaseLostError)
	require.ErrorAs(t, context.Cause(le.Context()), &loss)
	require.Equal(t, le.Grant(), loss.Grant)
	require.Zero(t, le.Remaining())
	require.NoError(t, le.Release(patient(t)), "releasing a lost lease is no error")
	return loss.Reason
}

// awaitWatching waits until the only acquisition in l knows its queue: its Txn was answered and its watch and list are
// there. AfterContended would start the watch before the answer.
func awaitWatching(t testing.TB, l *Locker, resource string) {
	t.Helper()
	p, contended := current(l, resource), make(chan struct{})
	p.Watch(func() { close(contended) }, func() {
		if p.line.contended(p) { // by the holder, which is the other one
			p.Contend()
		}
	})
	etcdtest.Receive(t, contended)
}

func current(l *Locker, resource string) *position {
	l.mu.Lock()
	ln := l.lines[resource]
	l.mu.Unlock()
	if ln == nil {
		return nil
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.firstWanted()
}

func keyOf(le fence.Lease) string { return le.(interface{ Key() string }).Key() }

func renews(t testing.TB, l *Locker) bool {
	t.Helper()
	s, done := l.sessions.Current(), make(chan struct{})
	s.RenewNow(func() { close(done) })
	etcdtest.Receive(t, done)
	return s.LastFailure() == nil
}

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

func isInDoubt(err error) bool {
	away := new(fence.UnavailableError)
	return errors.As(err, &away) && away.InDoubt
}

func awaitSettled(t testing.TB, p *position) {
	t.Helper()
	require.Eventually(t, func() bool {
		how, _ := p.state()
		return how >= removed
	}, etcdtest.Patience, time.Millisecond)
}

// inTurn returns a position whose key isn't written yet.
func inTurn(t testing.TB, l *Locker, s *session.Session, resource string) *position {
	t.Helper()
	ln := l.enter(resource)
	require.Nil(t, ln.tryTake())
	p := ln.newPosition(s, nil)
	t.Cleanup(func() { p.end(errAbandoned) })
	return p
}

type link struct {
	*netfault.Link
	down atomic.Bool // no connection is made
}

func newLink(t testing.TB, endpoint string) *link {
	t.Helper()
	l, err := netfault.New(strings.TrimPrefix(endpoint, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return &link{Link: l}
}

func (l *link) endpoint() string { return "http://" + l.Addr() }

func (l *link) dial(t testing.TB) *clientv3.Client {
	t.Helper()
	return dial(t, l.endpoint(), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if l.down.Load() {
			return nil, errors.New("the link is down")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
}

func (l *link) goDown() {
	l.down.Store(true)
	l.Reset()
}
