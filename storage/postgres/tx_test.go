package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// guarded runs op in a guarded transaction of its own, on a fresh database.
func guarded(t *testing.T, op guard.Func[pgx.Tx]) (*pgxpool.Pool, error) {
	t.Helper()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	_, err := attempt(t.Context(), store, op, claim(t, store, grant(5, "a")))
	return pool, err
}

func TestTx_CannotBeEndedByItsMethods(t *testing.T) {
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		require.ErrorIs(t, tx.Commit(ctx), postgres.ErrManagedTx)
		require.ErrorIs(t, tx.Rollback(ctx), postgres.ErrManagedTx)
		return set("x", 1)(ctx, tx)
	})
	require.NoError(t, err)
	holds(t, pool, "x", 1)
}

// With the connection an operation could do what the guard would not see.
func TestTx_HidesItsConnection(t *testing.T) {
	_, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		require.Nil(t, tx.Conn())
		nested, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.Nil(t, nested.Conn())
		require.NoError(t, nested.Commit(ctx))
		rows, err := tx.Query(ctx, "select 1")
		require.NoError(t, err)
		require.Nil(t, rows.Conn())
		rows.Close()

		batch := &pgx.Batch{}
		batch.Queue("select 1")
		batch.Queue("select 2").Query(func(rows pgx.Rows) error {
			require.Nil(t, rows.Conn())
			return nil
		})
		results := tx.SendBatch(ctx, batch)
		require.Nil(t, results.Tx())
		rows, err = results.Query()
		require.NoError(t, err)
		require.Nil(t, rows.Conn())
		rows.Close()
		return results.Close()
	})
	require.NoError(t, err)
}

func TestTx_TakesWhatPgxHas(t *testing.T) {
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"key", "value"},
			pgx.CopyFromRows([][]any{{"copied", int64(1)}, {"copied too", int64(2)}}))
		require.NoError(t, err)
		require.EqualValues(t, 2, n)

		_, err = tx.Prepare(ctx, "by_key", "select value from item where key = $1")
		require.NoError(t, err)
		require.EqualValues(t, 2, query[int64](t, tx, "by_key", "copied too"))

		rows, err := tx.Query(ctx, "select key, value from item order by key")
		require.NoError(t, err)
		type item struct {
			Key   string
			Value int64
		}
		items, err := pgx.CollectRows(rows, pgx.RowToStructByName[item])
		require.NoError(t, err)
		require.Equal(t, []item{{"copied", 1}, {"copied too", 2}}, items)

		batch := &pgx.Batch{}
		batch.Queue("insert into item values ('batched', 3)")
		var got int64
		batch.Queue("select value from item where key = $1", "batched").QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
		require.NoError(t, tx.SendBatch(ctx, batch).Close())
		require.EqualValues(t, 3, got)

		require.ErrorIs(t, tx.QueryRow(ctx, "select value from item where key = 'no'").Scan(&got), pgx.ErrNoRows)
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return set("nested", 4)(ctx, tx) })
	})
	require.NoError(t, err)
	for key, value := range map[string]int64{"copied": 1, "batched": 3, "nested": 4} {
		holds(t, pool, key, value)
	}
}

func TestTx_RefusesToBeginInABatch(t *testing.T) {
	_, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.Serializable})
		batch.Queue("insert into item values ('x', 1)")
		results := tx.SendBatch(ctx, batch)
		require.ErrorIs(t, results.Tx().Commit(ctx), pgx.ErrTxClosed)
		return results.Close()
	})
	require.ErrorIs(t, err, postgres.ErrManagedTx)
}

// An error that an operation returns arrives as it is.
func TestRun_ReturnsTheOperationsOwnError(t *testing.T) {
	outOfStock := errors.New("out of stock")
	_, err := guarded(t, func(context.Context, pgx.Tx) error { return outOfStock })
	require.True(t, err == outOfStock, "%v", err)

	var failed error
	_, err = guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		_, failed = tx.Exec(ctx, "select 1/0")
		return failed
	})
	require.True(t, err == failed, "%v", err)
	require.NotErrorIs(t, err, pgx.ErrTxCommitRollback)
}

func TestRun_SwallowedFailureDoesNotCommit_G4(t *testing.T) {
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, set("x", 1)(ctx, tx))
		_, err := tx.Exec(ctx, "select 1/0")
		require.Error(t, err)
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	holds(t, pool, "x", 0)
}

// A result that is still open when COMMIT goes out could hold up the seal behind
// a client that doesn't read.
func TestRun_OpenResultsDoNotCommit_N12(t *testing.T) {
	for name, leave := range map[string]func(ctx context.Context, tx pgx.Tx){
		"rows": func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Query(ctx, "select generate_series(1, 10)") },
		"row":  func(ctx context.Context, tx pgx.Tx) { _ = tx.QueryRow(ctx, "select 1") },
		"batch": func(ctx context.Context, tx pgx.Tx) {
			batch := &pgx.Batch{}
			batch.Queue("select 1")
			_ = tx.SendBatch(ctx, batch)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
				require.NoError(t, set("x", 1)(ctx, tx))
				leave(ctx, tx)
				return nil
			})
			require.ErrorContains(t, err, "an open result: close Rows")
			holds(t, pool, "x", 0)
		})
	}
}

// What is kept of a transaction can't reach the connection, which by then may
// serve another.
func TestTx_IsUselessAfterTheOperation_N15(t *testing.T) {
	pool := openPool(t, migrated(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	store := newStore(t, pool, nil)
	var kept, savepoint pgx.Tx
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) (err error) {
		kept = tx
		savepoint, err = tx.Begin(ctx)
		return err
	}))
	ctx := t.Context()
	for _, tx := range []pgx.Tx{kept, savepoint} {
		_, err := tx.Exec(ctx, "insert into item values ('late', 1)")
		require.ErrorIs(t, err, guard.ErrTxEnded)
		rows, err := tx.Query(ctx, "insert into item values ('late', 1)")
		require.ErrorIs(t, err, guard.ErrTxEnded)
		require.ErrorIs(t, rows.Err(), guard.ErrTxEnded)
		require.ErrorIs(t, tx.QueryRow(ctx, "select 1").Scan(new(int)), guard.ErrTxEnded)
		batch := &pgx.Batch{}
		batch.Queue("insert into item values ('late', 1)")
		require.ErrorIs(t, tx.SendBatch(ctx, batch).Close(), guard.ErrTxEnded)
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"key", "value"}, pgx.CopyFromRows([][]any{{"late", 1}}))
		require.ErrorIs(t, err, guard.ErrTxEnded)
		_, err = tx.Prepare(ctx, "p", "select 1")
		require.ErrorIs(t, err, guard.ErrTxEnded)
		_, err = tx.Begin(ctx)
		require.ErrorIs(t, err, guard.ErrTxEnded)
		late := tx.LargeObjects()
		_, err = late.Create(ctx, 4711)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
	}
	holds(t, pool, "late", 0)
	require.Zero(t, query[int](t, pool, "select count(*) from pg_largeobject_metadata"))
}
