package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

func TestSavepoint_UndoesItsOwnWorkOnly(t *testing.T) {
	t.Parallel()
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, set("before", 1)(ctx, tx))
		outer, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("outer", 1)(ctx, outer))
		inner, err := outer.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("inner", 1)(ctx, inner))
		_, err = inner.Exec(ctx, "select 1/0")
		require.Error(t, err)
		require.NoError(t, inner.Rollback(ctx))
		require.NoError(t, outer.Commit(ctx))
		return set("after", 1)(ctx, tx)
	})
	require.NoError(t, err)
	for key, value := range map[string]int64{"before": 1, "outer": 1, "inner": 0, "after": 1} {
		holds(t, pool, key, value)
	}
}

func TestSavepoint_CommitOfAFailedOneUndoesIt(t *testing.T) {
	t.Parallel()
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		savepoint, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("x", 1)(ctx, savepoint))
		_, err = savepoint.Exec(ctx, "select 1/0")
		require.Error(t, err)
		require.ErrorIs(t, savepoint.Commit(ctx), pgx.ErrTxCommitRollback)
		return set("y", 1)(ctx, tx)
	})
	require.NoError(t, err)
	holds(t, pool, "x", 0)
	holds(t, pool, "y", 1)
}

// If a rollback never reached the server, as when it is deferred with a context that has
// ended, the savepoint's work is not undone: nothing may commit.
func TestSavepoint_FailedRollbackCommitsNothing(t *testing.T) {
	t.Parallel()
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		savepoint, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("x", 1)(ctx, savepoint))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, savepoint.Rollback(ended), context.Canceled)
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	holds(t, pool, "x", 0)
}

// A savepoint that was neither released nor rolled back, as some mappers leave it, is
// committed with the transaction around it: sealed, and kept by Once.
func TestSavepoint_LeftOpenIsSealedAndKept(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"by SQL":   func(ctx context.Context, tx pgx.Tx) error { return statement("savepoint s")(ctx, tx) },
		"by Begin": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
		"two": func(ctx context.Context, tx pgx.Tx) error {
			return statement("savepoint s; insert into item values ('s', 1); savepoint t")(ctx, tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t)
			store := newStore(t, pool, nil)
			txn := begin(t, store, claim(t, store, grant(5, "a")))
			require.NoError(t, txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
				if err := open(ctx, tx); err != nil {
					return err
				}
				return set("x", 1)(ctx, tx)
			})))
			key := storage.OnceKey{Key: "k"}
			moved, err := txn.Commit(t.Context(), keeping(key, []byte("1")))
			require.NoError(t, err)
			result, found, err := store.Recall(t.Context(), key, moved...)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, "1", string(result))
			holds(t, pool, "x", 1)
		})
	}
}

// A Commit that never reached the server hasn't ended the savepoint: a Rollback that
// follows has its work to undo.
func TestSavepoint_RollbackUndoesWhatAFailedCommitLeft(t *testing.T) {
	t.Parallel()
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		savepoint, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("x", 1)(ctx, savepoint))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, savepoint.Commit(ended), context.Canceled)
		require.NoError(t, savepoint.Rollback(ctx))
		return set("y", 1)(ctx, tx)
	})
	require.NoError(t, err)
	holds(t, pool, "x", 0)
	holds(t, pool, "y", 1)
}
