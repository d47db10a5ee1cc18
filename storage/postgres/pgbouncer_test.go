package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
)

// startPooler starts a PgBouncer in transaction mode in front of server.
func startPooler(t testing.TB, server *pgserver.Server, cfg pgbouncer.Config) *pgbouncer.Pooler {
	t.Helper()
	pooler, err := pgbouncer.Start(t.Context(), server, &cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, pooler.Stop(ctx))
	})
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
	for _, step := range []struct {
		name   string
		run    func() error
		want   error
		closes bool
	}{
		{"claim", func() (err error) {
			c, err = claimOne(t.Context(), store, grant(5, "a"))
			return err
		}, nil, false},
		{"commit", func() error {
			moved, err := attempt(t.Context(), store, set("x", 1), c)
			c = moved[0]
			return err
		}, nil, false},
		{"batch", func() error {
			batch, _ := batchOf(insertItem, "y", 1)
			moved, err := attempt(t.Context(), store, batch, c)
			c = moved[0]
			return err
		}, nil, false},
		{"read", func() error { return read(t.Context(), store, get("x", new(int64)), c) }, nil, false},
		{"batch that reads", func() error {
			batch, _ := batchOf("select 1")
			return read(t.Context(), store, batch, c)
		}, nil, false},
		{"failed operation", func() error {
			_, err := attempt(t.Context(), store, do(func(context.Context, pgx.Tx) error { return context.Canceled }), c)
			return err
		}, context.Canceled, false},
		{"rollback", func() error {
			begin(t, store, c).Rollback(t.Context())
			return nil
		}, nil, false},
		{"rejection at the seal", func() error {
			moved := c
			moved.Seq--
			_, err := attempt(t.Context(), store, set("x", 2), moved)
			return err
		}, storage.ErrOvertaken, false},
		{"resolve", func() error {
			_, err := store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9})
			return err
		}, nil, false},
		{"rejection at the begin check", func() error {
			claim(t, store, grant(6, "b"))
			_, err := attempt(t.Context(), store, set("x", 2), c)
			return err
		}, storage.ErrStaleToken, true},
		{"a COMMIT of the operation's own", func() error {
			_, err := attempt(t.Context(), store, statement("commit"), claim(t, store, grant(6, "b")))
			return err
		}, storage.ErrTxEnded, false},
	} {
		require.ErrorIs(t, step.run(), step.want, step.name)
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
	bystander := grant(5, "c")
	bystander.Resource = "sku/2"
	other := begin(t, store, claim(t, store, bystander))
	stale := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, other.Run(t.Context(), set("y", 1)))
	require.NoError(t, stale.Run(t.Context(), set("x", 1)))

	write(t, store, claim(t, store, grant(6, "b")), set("x", 2))
	err := stale.Run(t.Context(), set("x", 3))
	var rejected *storage.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, grant(6, "b"), rejected.Current)
	_, err = other.Commit(t.Context(), nil)
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
