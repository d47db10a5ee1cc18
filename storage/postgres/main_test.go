package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const resource = "sku/1"

// closeAll begins the message that ends a guarded transaction.
const closeAll = "close all; "

// unique returns a name that nothing else on the server has, such as another run's role.
func unique(word string) string { return fmt.Sprintf("%s_%016x", word, rand.Uint64()) }

func grant(token fence.Token, holder string) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: holder}
}

func fresh(t testing.TB, cfg *postgres.Config) (*pgxpool.Pool, *postgres.Store) {
	t.Helper()
	pool := newPool(t)
	return pool, newStore(t, pool, cfg)
}

func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return openPool(t, migrated(t))
}

func migrated(t testing.TB) (dsn string) {
	t.Helper()
	return template.Database(t)
}

var template = pgserver.Template{Prepare: migrate}

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "create table item (key text primary key, value bigint not null)")
	return err
}

func openPool(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.MaxConns = 8
	for _, option := range options {
		option(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func with(params map[string]string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		for name, value := range params {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
}

// newStore makes a store with cfg. Its times Idle and Cleanup, unless cfg sets them, are a minute:
// a machine may stall for longer than their defaults.
func newStore(t testing.TB, pool *pgxpool.Pool, cfg *postgres.Config) *postgres.Store {
	t.Helper()
	var own postgres.Config
	if cfg != nil {
		own = *cfg
	}
	own.Times().Idle = cmp.Or(own.Times().Idle, time.Minute)
	own.Times().Cleanup = cmp.Or(own.Times().Cleanup, time.Minute)
	store, err := postgres.NewStore(pool, &own)
	require.NoError(t, err)
	return store
}

func newGuard(t testing.TB, store storage.Store[pgx.Tx]) *guard.Guard[pgx.Tx] {
	t.Helper()
	return guardtest.New(t, store)
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// atEachLevel runs a test without and with one snapshot for the whole transaction, in parallel.
// The random schedules draw from all levels.
func atEachLevel(t *testing.T, test func(t *testing.T, level pgx.TxIsoLevel)) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			test(t, level)
		})
	}
}

func at(level pgx.TxIsoLevel) *postgres.Config { return &postgres.Config{Isolation: level} }

func claim(t testing.TB, store *postgres.Store, g fence.Grant) storage.Claim {
	t.Helper()
	c, err := claimOne(t.Context(), store, g)
	require.NoError(t, err)
	return c
}

func claimOne(ctx context.Context, store *postgres.Store, g fence.Grant) (storage.Claim, error) {
	claims, err := store.Claim(ctx, storage.Claim{Grant: g})
	if len(claims) == 0 {
		return storage.Claim{}, err
	}
	return claims[0], err
}

func keeping(key storage.OnceKey, result []byte) []storage.Move {
	return []storage.Move{{Kept: []storage.Kept{{Key: key, Result: result}}}}
}

// claimOnly claims without an eviction.
func claimOnly(t testing.TB, pool *pgxpool.Pool, g fence.Grant) storage.Claim {
	t.Helper()
	c := storage.Claim{Grant: g}
	require.NoError(t, pool.QueryRow(t.Context(), "select * from fence.claim_one($1, $2, $3, $4)", g.Resource, g.Epoch, int64(g.Token), g.Holder).
		Scan(&c.Resource, &c.Seq, &c.Tx))
	return c
}

func begin(t testing.TB, store *postgres.Store, claims ...storage.Claim) storage.Txn[pgx.Tx] {
	t.Helper()
	txn := connect(t, store, claims...)
	require.NoError(t, txn.Run(t.Context(), statement("select 1")))
	return txn
}

func connect(t testing.TB, store *postgres.Store, claims ...storage.Claim) storage.Txn[pgx.Tx] {
	t.Helper()
	txn, err := store.Begin(t.Context(), claims...)
	require.NoError(t, err)
	t.Cleanup(func() { txn.Rollback(context.Background()) })
	return txn
}

func write(t testing.TB, store *postgres.Store, c storage.Claim, op storage.Op[pgx.Tx]) storage.Claim {
	t.Helper()
	txn := connect(t, store, c)
	require.NoError(t, txn.Run(t.Context(), op))
	claims, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	return claims[0]
}

func attempt(ctx context.Context, store *postgres.Store, op storage.Op[pgx.Tx], claims ...storage.Claim) ([]storage.Claim, error) {
	txn, err := store.Begin(ctx, claims...)
	return through(ctx, txn, err, op)
}

// through runs op in txn, which began with err.
func through(ctx context.Context, txn storage.Txn[pgx.Tx], err error, op storage.Op[pgx.Tx]) ([]storage.Claim, error) {
	if err != nil {
		return nil, err
	}
	defer txn.Rollback(ctx)
	if err := txn.Run(ctx, op); err != nil {
		return nil, err
	}
	return txn.Commit(ctx, nil)
}

func do(f func(ctx context.Context, tx pgx.Tx) error) storage.Func[pgx.Tx] { return f }

func statement(sql string, args ...any) storage.Func[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
}

func get(key string, value *int64) storage.Func[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select coalesce((select value from item where key = $1), 0)", key).Scan(value)
	}
}

func set(key string, value int64) storage.Func[pgx.Tx] {
	return statement("insert into item values ($1, $2) on conflict (key) do update set value = excluded.value", key, value)
}

// add reads a number and then writes the sum: without a fence, two of them lose an update.
func add(key string, delta int64) storage.Func[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx) error {
		var value int64
		if err := get(key, &value)(ctx, tx); err != nil {
			return err
		}
		return set(key, value+delta)(ctx, tx)
	}
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func query[T any](t testing.TB, q querier, sql string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, q.QueryRow(t.Context(), sql, args...).Scan(&value))
	return value
}

func mustExec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func holds(t testing.TB, pool *pgxpool.Pool, key string, want int64) {
	t.Helper()
	require.Equal(t, want, query[int64](t, pool, "select coalesce((select value from item where key = $1), 0)", key))
}

func kinds(t testing.TB, store *postgres.Store) []storage.EntryKind {
	t.Helper()
	entries, err := store.Entries(t.Context(), resource, 0, 1000)
	require.NoError(t, err)
	var kinds []storage.EntryKind
	for i, e := range entries {
		require.EqualValues(t, i+1, e.Seq)
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func doOnce[R guard.Resources](ctx context.Context, on guard.Runner[pgx.Tx], resources R, fn func(context.Context, pgx.Tx) error, opts ...guard.ValueOption) error {
	_, err := guard.Value(ctx, on, resources, func(ctx context.Context, tx pgx.Tx) (struct{}, error) { return struct{}{}, fn(ctx, tx) }, opts...)
	return err
}

func requireRejected(t testing.TB, err error, want storage.Reason, msgAndArgs ...any) *storage.RejectedError {
	t.Helper()
	rejected := new(storage.RejectedError)
	require.ErrorAs(t, err, &rejected, msgAndArgs...)
	require.Equal(t, want, rejected.Reason, msgAndArgs...)
	require.NoError(t, rejected.RecordErr, msgAndArgs...)
	return rejected
}

func recorded(t testing.TB, store *postgres.Store) []storage.Rejection {
	t.Helper()
	rejections, err := store.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
	return rejections
}

func inDoubt(t testing.TB, err error) storage.InDoubt {
	t.Helper()
	var doubt *storage.InDoubtError
	require.ErrorAs(t, err, &doubt)
	return doubt.InDoubt
}

func applied(t testing.TB, store *postgres.Store, d storage.InDoubt) bool {
	t.Helper()
	applied, err := store.Resolve(t.Context(), d)
	require.NoError(t, err)
	return applied
}

func requireNotReady(t testing.TB, err error, want postgres.NotReadyReason, msgAndArgs ...any) {
	t.Helper()
	notReady := new(postgres.NotReadyError)
	require.ErrorAs(t, err, &notReady, msgAndArgs...)
	require.Equal(t, want, notReady.Reason, msgAndArgs...)
	require.ErrorIs(t, err, postgres.ErrNotReady, msgAndArgs...)
}

func TestStore_PassesTheContract(t *testing.T) {
	t.Parallel()
	guardtest.TestStore(t, func(t *testing.T) guardtest.Harness[pgx.Tx] { return harness(t, newPool(t), nil) })
}

func TestStore_PassesTheContractEverywhere(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			guardtest.TestStore(t, func(t *testing.T) guardtest.Harness[pgx.Tx] {
				return harness(t, newPool(t), &postgres.Config{Isolation: level})
			})
		})
	}
	t.Run("pooler", func(t *testing.T) {
		t.Parallel()
		pooler := startPooler(t, pgserver.Shared(t), map[string]string{"default_pool_size": "20"})
		guardtest.TestStore(t, func(t *testing.T) guardtest.Harness[pgx.Tx] {
			dsn := migrated(t)
			lax(t, openPool(t, dsn))
			return harness(t, openPooled(t, pooler, dsn), nil)
		})
	})
}

func harness(t *testing.T, pool *pgxpool.Pool, cfg *postgres.Config) guardtest.Harness[pgx.Tx] {
	read := func(ctx context.Context, q querier, key string) (value int64, err error) {
		err = q.QueryRow(ctx, "select coalesce((select value from item where key = $1), 0)", key).Scan(&value)
		return value, err
	}
	store := guardtest.Store[pgx.Tx](newStore(t, pool, cfg))
	if cfg != nil {
		store = struct{ guardtest.Store[pgx.Tx] }{store} // no transaction claims by itself at its level
	}
	return guardtest.Harness[pgx.Tx]{
		Store: store, Locker: newLocker(t, pool),
		Get:  func(ctx context.Context, tx pgx.Tx, key string) (int64, error) { return read(ctx, tx, key) },
		Set:  func(ctx context.Context, tx pgx.Tx, key string, value int64) error { return set(key, value)(ctx, tx) },
		Read: func(ctx context.Context, key string) (int64, error) { return read(ctx, pool, key) },
	}
}
