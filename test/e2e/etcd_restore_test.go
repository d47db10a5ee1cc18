package e2e_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
)

// restored is an etcd that goes back, with a database that doesn't.
type restored struct {
	t     *testing.T
	etcd  *etcdserver.Server
	line  *line // leads to it
	dsn   string
	pool  *pgxpool.Pool
	calls int64 // that were acknowledged
}

func newRestored(t *testing.T) *restored {
	r := &restored{t: t, etcd: anotherEtcd(t)}
	r.line = &line{target: address(r.etcd)}
	r.dsn, r.pool = counters(t, "a")
	return r
}

func anotherEtcd(t *testing.T) *etcdserver.Server {
	e, err := etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func address(e *etcdserver.Server) string { return strings.TrimPrefix(e.Endpoint(), "http://") }

// process returns a new process of the service. What it holds it keeps.
func (r *restored) process() *process {
	return newProcess(r.t, r.etcd.Endpoint(), r.dsn, etcd.Config{}, &guard.Config{KeepFor: time.Hour}, grpc.WithContextDialer(r.line.dial))
}

// do makes a call that has to take effect.
func (r *restored) do(p *process) {
	r.t.Helper()
	require.NoError(r.t, guard.Do(r.t.Context(), p.Guard, "a", increment("a")))
	r.calls++
}

// age has n tokens granted and used.
func (r *restored) age(n int) {
	for range n {
		p := r.process()
		r.do(p)
		closeProcess(r.t, p)
	}
}

func (r *restored) snapshot() string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "snapshot")
	require.NoError(r.t, r.etcd.Snapshot(r.t.Context(), file))
	return file
}

// raiseEpoch does what the operator's instructions say.
func (r *restored) raiseEpoch(epoch string) {
	r.t.Helper()
	client, err := r.etcd.Client(r.t.Context())
	require.NoError(r.t, err)
	defer client.Close()
	_, err = client.Put(r.t.Context(), r.t.Name()+"/epoch", epoch)
	require.NoError(r.t, err)
}

// requireRejected makes calls of fresh processes while etcd grants tokens that the
// database has seen, at last the very highest one: none takes effect.
func (r *restored) requireRejected(highest fence.Grant) {
	r.t.Helper()
	revision := r.passRevisions(0)
	require.Less(r.t, revision+10, int64(highest.Token), "the test needs lower tokens")
	p := r.process()
	err := guard.Do(r.t.Context(), p.Guard, "a", increment("a"), guard.Retryable())
	requireRejected(r.t, err, storage.ReasonTokensWentBack)
	closeProcess(r.t, p)

	p = r.process()
	r.passRevisions(int64(highest.Token) - 1)
	err = guard.Do(r.t.Context(), p.Guard, "a", increment("a"))
	requireRejected(r.t, err, storage.ReasonCollision)
	require.EqualValues(r.t, r.calls, value(r.t, r.pool, "a"))
	closeProcess(r.t, p)
}

// passRevisions has etcd's revision rise to the given one, and returns it.
func (r *restored) passRevisions(until int64) int64 {
	r.t.Helper()
	client, err := r.etcd.Client(r.t.Context())
	require.NoError(r.t, err)
	defer client.Close()
	now, err := client.Get(r.t.Context(), "x")
	require.NoError(r.t, err)
	revision := now.Header.Revision
	for revision < until {
		put, err := client.Put(r.t.Context(), "x", "")
		require.NoError(r.t, err)
		revision = put.Header.Revision
	}
	return revision
}

// requireStopped requires that a running process says that etcd went back.
func (r *restored) requireStopped(p *process, what ...string) {
	r.t.Helper()
	err := guard.Do(r.t.Context(), p.Guard, "other", increment("a"))
	away := new(fence.UnavailableError)
	require.ErrorAs(r.t, err, &away)
	require.Equal(r.t, fence.WentBack, away.Reason)
	require.Regexp(r.t, "etcd: ("+strings.Join(what, "|")+") (went back|changed)", err.Error())
}

// highest is the last grant that the database knows.
func (r *restored) highest() fence.Grant {
	r.t.Helper()
	entries := r.entries()
	return entries[len(entries)-1].Grant
}

// entries returns the history, in which tokens never fall, and no two holders
// share one.
func (r *restored) entries() []storage.Entry {
	r.t.Helper()
	entries, err := r.process().store.Entries(r.t.Context(), "a", 0, 1000)
	require.NoError(r.t, err)
	for i := range entries[1:] {
		order := entries[i+1].Grant.Compare(entries[i].Grant)
		require.GreaterOrEqual(r.t, order, 0)
		require.Equal(r.t, order == 0, entries[i].Grant == entries[i+1].Grant)
	}
	return entries
}

// requireSums requires that exactly the acknowledged calls took effect.
func (r *restored) requireSums() {
	r.t.Helper()
	require.EqualValues(r.t, r.calls, value(r.t, r.pool, "a"))
	r.entries()
}

// etcd is restored from a snapshot as it is: the same cluster id, the same tokens
// once more.
func TestRestore_OfEtcdNeverGetsALowerOrEqualTokenAccepted(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.age(1)
	file := r.snapshot()
	r.age(5)
	running := r.process()
	r.do(running)
	highest := r.highest()

	require.NoError(t, r.etcd.Restore(t.Context(), file, 0))
	r.requireStopped(running, "revision", "raft term")
	r.requireRejected(highest)
	r.raiseEpoch("2")
	r.do(r.process())
	require.Equal(t, highest.Epoch+1, r.highest().Epoch)
	r.do(running)
	r.requireSums()
}

// With a bump every token is new. What is kept at the time is lost, and found to
// be lost before anything else is done under it or after another holder's claim.
func TestRestore_OfEtcdWithABumpNeedsNothingElse(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	running := r.process()
	other, err := running.locker.Acquire(t.Context(), "other") // so that its session is in the snapshot
	require.NoError(t, err)
	file := r.snapshot()
	r.do(running)
	highest := r.highest()
	require.NoError(t, other.Release(t.Context()))
	require.NoError(t, r.etcd.Restore(t.Context(), file, 1_000_000))
	fresh := r.process()
	r.do(fresh)
	require.Greater(t, r.highest().Token, highest.Token+900_000)
	if err := guard.Do(t.Context(), running.Guard, "a", increment("a")); err == nil {
		r.calls++
	}
	r.requireSums()
}

// The name that the processes know leads to another cluster, an empty one.
func TestRestore_AnotherClusterBehindTheSameName(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	another := anotherEtcd(t)
	r.age(10)
	running := r.process()
	r.do(running)
	highest := r.highest()
	r.etcd = another
	r.line.lead(address(r.etcd))
	r.requireStopped(running, "cluster id")
	r.requireRejected(highest)
	r.raiseEpoch("2")
	r.do(r.process())
	r.do(running)
	require.EqualValues(t, 2, r.highest().Epoch)
	r.requireSums()
}

// line is a network to etcd that can be led elsewhere, and cut.
type line struct {
	mu     sync.Mutex
	target string // "" while it is cut
	conns  []net.Conn
}

func (l *line) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.target == "" {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.ErrClosed}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.target)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// lead breaks all connections and has the next ones lead to the target.
func (l *line) lead(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// The holder is cut off from etcd and from nothing else. What it writes before
// its successor's claim counts, and nothing later: neither in its Hold, nor from
// a process that it has given its grant to.
func TestPartition_AHolderWithoutEtcdWritesUntilItIsFenced(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	lock := etcd.Config{TTL: 15 * time.Second}
	cut := newProcess(t, r.etcd.Endpoint(), r.dsn, lock, nil, grpc.WithContextDialer(r.line.dial))
	successor := newProcess(t, r.etcd.Endpoint(), r.dsn, lock, nil)
	var grant fence.Grant
	err := guard.Hold(t.Context(), cut.Guard, "a", func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		grant = guard.Grants(ctx)[0]
		require.NoError(t, guard.Do(ctx, h, "a", increment("a")))
		r.calls++
		r.line.lead("")
		if guard.Do(ctx, h, "a", increment("a")) == nil { // unless this machine is slower than the time to live
			r.calls++
		}
		r.do(successor)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), fence.ErrLeaseLost)
		requireReason(t, context.Cause(ctx), fence.Unreachable)
		return guard.Do(context.WithoutCancel(ctx), h, "a", increment("a"))
	})
	require.ErrorIs(t, err, guard.ErrStaleToken)
	err = guard.Do(t.Context(), cut.Guard.UnderGrant(grant), "a", increment("a"))
	require.ErrorIs(t, err, guard.ErrStaleToken)
	err = guard.Do(t.Context(), cut.Guard, "a", increment("a"))
	requireReason(t, err, fence.Unreachable)
	r.line.lead(address(r.etcd))
	require.Eventually(t, func() bool {
		return guard.Do(t.Context(), cut.Guard, "a", increment("a")) == nil
	}, time.Minute, 10*time.Millisecond, "it doesn't go on by itself")
	r.calls++
	r.requireSums()
}

// While etcd is full it grants no lock; a process that owns a resource goes on.
func TestNoSpace_AKeptResourceGoesOn(t *testing.T) {
	t.Parallel()
	small, err := etcdserver.Start(t.Context(), &etcdserver.Config{ExtraFlags: []string{"--quota-backend-bytes=2097152"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, small.Stop(context.Background())) })
	r := &restored{t: t, etcd: small, line: &line{target: address(small)}}
	r.dsn, r.pool = counters(t, "a")
	p := r.process()
	r.do(p)
	client, err := small.Client(t.Context())
	require.NoError(t, err)
	defer client.Close()
	for err == nil {
		_, err = client.Put(t.Context(), "filler", strings.Repeat("x", 1<<17))
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	for range 10 {
		r.do(p)
	}
	err = guard.Do(t.Context(), p.Guard, "other", increment("a"))
	requireReason(t, err, fence.NoSpace)
	require.NoError(t, p.Close(t.Context()), "and can be given back")
	r.requireSums()
}

// requireReason requires that the lock service was unavailable for a reason.
func requireReason(t *testing.T, err error, reason fence.UnavailableReason) {
	t.Helper()
	away := new(fence.UnavailableError)
	require.ErrorAs(t, err, &away)
	require.Equal(t, reason, away.Reason)
}
