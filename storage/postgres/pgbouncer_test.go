package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// startPooler starts a PgBouncer in transaction mode in front of server.
func startPooler(t testing.TB, server *pgserver.Server, cfg pgbouncer.Config) *pgbouncer.Pooler {
	t.Helper()
	pooler, err := pgbouncer.Start(t.Context(), server, &cfg)
	require.NoError(t, err)
	stopLater(t, pooler)
	return pooler
}

// unnamed configures a pool whose statements may each get another server connection: it
// uses no named prepared statements.
func unnamed(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

// openPooled returns a pool on a database, through the pooler.
func openPooled(t testing.TB, pooler *pgbouncer.Pooler, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	through, err := pooler.DSN(dsn)
	require.NoError(t, err)
	return openPool(t, through, append([]func(*pgxpool.Config){unnamed}, options...)...)
}

// steps are calls through a pooler, one after the other.
var steps = []struct {
	name   string
	run    func(ctx context.Context, store *postgres.Store, c *storage.Claim) error
	want   error
	closes bool // the server's connection
}{
	{name: "claim", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) (err error) {
		*c, err = claimOne(ctx, store, grant(5, "a"))
		return err
	}},
	{name: "commit", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, set("x", 1), c)
	}},
	{name: "batch", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, inserts("y"), c)
	}},
	{name: "read", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return read(ctx, store, get("x", new(int64)), *c)
	}},
	{name: "failed operation", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, do(func(context.Context, pgx.Tx) error { return context.Canceled }), c)
	}, want: context.Canceled},
	{name: "rejection at the seal", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		overtaken := *c
		overtaken.Seq--
		return moves(ctx, store, set("x", 2), &overtaken)
	}, want: storage.ErrOvertaken},
	{name: "rejection at the begin check", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		old := *c
		var err error
		if *c, err = claimOne(ctx, store, grant(6, "b")); err != nil {
			return err
		}
		return moves(ctx, store, set("x", 2), &old)
	}, want: storage.ErrStaleToken, closes: true},
	{name: "a COMMIT of the operation's own", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, statement("commit"), c)
	}, want: storage.ErrTxEnded},
}

// moves runs op in a transaction of its own, and leaves in c where it has moved the fence.
func moves(ctx context.Context, store *postgres.Store, op storage.Op[pgx.Tx], c *storage.Claim) error {
	moved, err := attempt(ctx, store, op, *c)
	if err == nil {
		*c = moved[0]
	}
	return err
}

// The next client of the server connection finds it unchanged: every setting of Fencekit's
// was local, and the lock that marks a holder ended with the transaction. A connection that
// an eviction may be about to terminate is closed.
func TestPooler_NothingOfOursStaysOnTheServersConnection(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	lax(t, openPool(t, dsn))
	pooler := startPooler(t, pgserver.Shared(t), pgbouncer.Config{PoolSize: 1})
	store := newStore(t, openPooled(t, pooler, dsn), nil)
	other := openPooled(t, pooler, dsn)
	const left = `select coalesce(string_agg(name || '=' || setting, ' ' order by name), '')
		|| concat(current_setting('fencekit.xid', true), current_setting('fencekit.read', true))
		|| (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())
		from pg_settings where source = 'session' and setting <> '' and name !~ '^transaction_'` // each transaction has its own of these
	before, server := query[string](t, other, left), query[int](t, other, backend)
	var c storage.Claim
	for _, step := range steps {
		require.ErrorIs(t, step.run(t.Context(), store, &c), step.want, step.name)
		require.Equal(t, before, query[string](t, other, left), step.name)
		now := query[int](t, other, backend)
		require.Equal(t, step.closes, now != server, step.name)
		server = now
	}
	holds(t, other, "x", 1)
}

// The process id that the eviction sees is the server connection's, which runs no other
// client's transaction at the time.
func TestPooler_ClaimEvictsTheStaleTransactionAlone(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pooler := startPooler(t, pgserver.Shared(t), pgbouncer.Config{PoolSize: 3})
	store := newStore(t, openPooled(t, pooler, dsn), patient())
	other := begin(t, store, claim(t, store, grantOf("sku/2", 5)))
	stale := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, other.Run(t.Context(), set("y", 1)))
	require.NoError(t, stale.Run(t.Context(), set("x", 1)))

	write(t, store, claim(t, store, grant(6, "b")), set("x", 2))
	requireRejected(t, stale.Run(t.Context(), set("x", 3)), storage.ReasonStale)
	_, err := other.Commit(t.Context(), nil)
	require.NoError(t, err)
	pool := openPool(t, dsn)
	holds(t, pool, "x", 2)
	holds(t, pool, "y", 1)
}

// lax makes settings the default of a database that the store can't leave as they are.
func lax(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	name := pgx.Identifier{query[string](t, pool, "select current_database()")}.Sanitize()
	mustExec(t, pool, "alter database "+name+" set synchronous_commit = off")
	mustExec(t, pool, "alter database "+name+" set client_min_messages = error")
}
