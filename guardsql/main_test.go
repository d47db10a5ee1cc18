package guardsql_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/guardsql"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "create table stock (sku text primary key, qty int not null check (qty >= 0)); insert into stock values ('42', 10)")
	return err
}}

// world is a database with 10 of product 42, and a Guard on it.
type world struct {
	t     testing.TB
	dsn   string
	pool  *pgxpool.Pool
	store *postgres.Store
	guard *guard.Guard[pgx.Tx]
}

func newWorld(t testing.TB) *world {
	return (&world{t: t, dsn: template.Database(t)}).open(nil)
}

// open returns w with a pool of its own.
func (w *world) open(connected func(*pgx.Conn) error) *world {
	cfg, err := pgxpool.ParseConfig(w.dsn)
	require.NoError(w.t, err)
	cfg.MaxConns = 4
	if connected != nil {
		cfg.AfterConnect = func(_ context.Context, c *pgx.Conn) error { return connected(c) }
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(pool.Close)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(w.t, err)
	return &world{w.t, w.dsn, pool, store, guardtest.New(w.t, store)}
}

// do runs fn in a guarded transaction.
func (w *world) do(fn func(ctx context.Context, tx pgx.Tx) error) error {
	return guard.Do(w.t.Context(), w.guard, "sku/42", fn)
}

// with runs fn with a DB in a guarded transaction.
func (w *world) with(fn func(db *sql.DB) error) error {
	return w.do(func(ctx context.Context, tx pgx.Tx) error { return with(ctx, tx, fn) })
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

func (w *world) qty(ctx context.Context) (qty int, err error) {
	err = w.pool.QueryRow(ctx, "select qty from stock where sku = '42'").Scan(&qty)
	return qty, err
}

func (w *world) requireQty(want int) {
	w.t.Helper()
	qty, err := w.qty(w.t.Context())
	require.NoError(w.t, err)
	require.Equal(w.t, want, qty)
}

// with is guardsql.With called by hand.
func with(ctx context.Context, tx pgx.Tx, fn func(*sql.DB) error) error {
	return guardsql.With(func(_ context.Context, db *sql.DB) error { return fn(db) })(ctx, tx)
}
