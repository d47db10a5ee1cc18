package e2e_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
)

// ruined is an etcd that is going to be restored or replaced, and a database, under load.
type ruined struct {
	*load
	*runbook
	t        *testing.T
	etcd     *etcdserver.Server
	line     *line
	dsn      string
	snapshot string
	swap     [2]*process // each keeps nothing but one of two resources
}

func newRuined(t *testing.T) *ruined {
	t.Helper()
	e := anotherEtcd(t)
	dsn, pool := counters(t, loaded...)
	_, err := pool.Exec(t.Context(), "create table ballast (s text)")
	require.NoError(t, err)
	r := &ruined{t: t, etcd: e, line: &line{target: address(e)}, dsn: dsn}
	r.runbook = newRunbook(t, e.Endpoint(), dsn)
	r.load = startLoad(t, e.Endpoint(), dsn, pool, grpc.WithContextDialer(r.line.dial))
	r.requireProgress()
	for n := range r.swap {
		r.swap[n] = newProcess(t, e.Endpoint(), dsn, etcd.Config{}, &guard.Config{KeepFor: time.Hour}, grpc.WithContextDialer(r.line.dial))
	}
	r.swaps(1)
	r.snapshot = t.TempDir() + "/snapshot"
	require.NoError(t, e.Snapshot(t.Context(), r.snapshot))
	r.swaps(0)            // the snapshot brings back the keys that this releases
	r.passRevisions(3000) // so that the tokens that follow are out of a restored etcd's reach
	require.NoError(t, r.witnesses())
	r.requireProgress()
	r.run(0, "fencectl audit anchor")
	return r
}

// passRevisions has etcd's revision rise by n.
func (r *ruined) passRevisions(n int) {
	r.t.Helper()
	client, err := r.etcd.Client(r.t.Context())
	require.NoError(r.t, err)
	defer client.Close()
	for range n {
		_, err := client.Put(r.t.Context(), "x", "")
		require.NoError(r.t, err)
	}
}

// process is one that is started now.
func (r *ruined) process() *process {
	return newProcess(r.t, r.etcd.Endpoint(), r.dsn, etcd.Config{}, nil, grpc.WithContextDialer(r.line.dial))
}

// swaps has each process use its own resource, or at 0 the other's.
func (r *ruined) swaps(own int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for n, p := range r.swap {
		err := guard.Do(ctx, p.Guard, fmt.Sprintf("swap/%d", (n+own+1)%2), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 1")
			return err
		}, guard.Retryable())
		require.NoError(r.t, err)
	}
}

// requireStopped requires that running processes and fresh ones make no progress, for the reasons
// that the guide names.
func (r *ruined) requireStopped() {
	t := r.t
	t.Helper()
	away := new(fence.UnavailableError)
	require.ErrorAs(t, guard.Do(t.Context(), r.witness.Guard, "other", increment("a"), guard.Retryable()), &away)
	require.Equal(t, fence.WentBack, away.Reason)
	r.names(string(away.Reason))
	err := guard.Do(t.Context(), r.process().Guard, "witness", increment("witness"), guard.Retryable())
	requireRejected(t, err, storage.ReasonTokensWentBack)
	r.names(string(storage.ReasonTokensWentBack))
}

// requireWhole requires that everybody goes on, and that every acknowledged operation is there.
func (r *ruined) requireWhole() {
	t := r.t
	t.Helper()
	r.run(0, "fencectl epoch show")
	r.run(0, "fencectl audit verify")
	r.done()
	r.swaps(0)
	r.requireProgress()
	require.NoError(t, r.witnesses())
	require.NoError(t, r.write(t.Context(), r.process(), "fresh/0", "a"))
	r.end()
	r.check(t, t.Context(), r.pool, append(loaded, "witness"))
}

func TestRunbook_EtcdRestoredFromASnapshot(t *testing.T) {
	t.Parallel()
	r := newRuined(t)
	r.open("etcd restored from a snapshot")
	r.instead("etcdutl snapshot restore", func() error { return r.etcd.Restore(t.Context(), r.snapshot, 0) })
	r.requireStopped()
	require.Contains(t, r.run(1, "fencectl epoch show"), "a fence's token is above etcd's revision")
	r.run(0, "fencectl epoch bump")
	r.requireWhole()
}

func TestRunbook_EtcdRestoredWithABump(t *testing.T) {
	t.Parallel()
	r := newRuined(t)
	r.open("etcd restored with a bump")
	r.instead("etcdutl snapshot restore snapshot.db --data-dir new --bump-revision 1000000000 --mark-compacted", func() error {
		return r.etcd.Restore(t.Context(), r.snapshot, 1_000_000_000)
	})
	r.run(0, "fencectl epoch show")
	r.run(0, "fencectl epoch bump")
	r.requireWhole()
}

func TestRunbook_AnotherEtcdBehindTheSameName(t *testing.T) {
	t.Parallel()
	r := newRuined(t)
	r.open("Another etcd behind the same name")
	r.etcd = anotherEtcd(t)
	r.line.lead(address(r.etcd))
	r.setenv("FENCEKIT_ETCD_ENDPOINTS", r.etcd.Endpoint())
	r.requireStopped()
	require.Contains(t, r.run(1, "fencectl epoch show"), "a fence's token is above etcd's revision")
	r.run(0, "fencectl epoch bump")
	r.requireWhole()
}

func anotherEtcd(t *testing.T) *etcdserver.Server {
	e, err := etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func address(e *etcdserver.Server) string { return strings.TrimPrefix(e.Endpoint(), "http://") }

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
