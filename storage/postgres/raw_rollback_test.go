package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
)

// unfenced sends SQL that leaves the guarded transaction by a ROLLBACK, adds one in another
// transaction that it commits, and begins a third one.
var unfenced = map[string]func(ctx context.Context, tx pgx.Tx) error{
	"text":    statement("rollback; begin read write; " + addOne + "; commit; begin"),
	"comment": statement("select 1; /* ; */ rollback; -- ;\n begin read write; " + addOne + "; commit; begin"),
	"a literal, as the store reads it": func(ctx context.Context, tx pgx.Tx) error {
		if err := statement("set local standard_conforming_strings = off")(ctx, tx); err != nil {
			return err
		}
		return statement(`select '\''; rollback; begin read write; `+addOne+`; commit; begin; --'`)(ctx, tx)
	},
	"batch": func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		for _, sql := range []string{"rollback", "begin read write", addOne, "commit", "begin"} {
			b.Queue(sql)
		}
		return tx.SendBatch(ctx, b).Close()
	},
	"prepared": func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		for i, sql := range []string{"rollback", "begin read write", addOne, "commit", "begin"} {
			if _, err := tx.Prepare(ctx, fmt.Sprint("p", i), sql); err != nil {
				return err
			}
			b.Queue(fmt.Sprint("p", i))
		}
		return tx.SendBatch(ctx, b).Close()
	},
}

const addOne = "insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1"

// After a ROLLBACK of the function's own the transaction that the begin check has seen is
// aborted, and what a later one of the function's committed stays. So nothing runs again, and no
// error says that it may, whatever the function then fails with.
func TestRun_ARollbackBeforeAFailureIsReported_N15_G4(t *testing.T) {
	t.Parallel()
	for how, leave := range unfenced {
		for _, mode := range []struct {
			name    string
			options []guard.Option
		}{{"write", nil}, {"read only", []guard.Option{guard.ReadOnly()}}} {
			for failure, sql := range map[string]string{
				"40001": "do $$ begin raise exception 'again' using errcode = '40001'; end $$",
				"57P01": "select pg_terminate_backend(pg_backend_pid())",
			} {
				t.Run(how+", "+mode.name+", "+failure, func(t *testing.T) {
					t.Parallel()
					pool, g := guardOn(t)
					err := guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
						if err := statement("select 1")(ctx, tx); err != nil {
							return err
						}
						if err := leave(ctx, tx); err != nil {
							return err
						}
						return statement(sql)(ctx, tx)
					}, append(mode.options, guard.Retryable())...)
					require.ErrorIs(t, err, guard.ErrTxEnded)
					require.ErrorContains(t, err, failure)
					require.False(t, guard.SafeToRetry(err))
					holds(t, pool, "x", 1)
				})
			}
		}
	}
}

// A text without COMMIT and ROLLBACK leaves an error what it is, also if it has several statements.
func TestRun_SeveralStatementsLeaveAFailureTransient_L1(t *testing.T) {
	t.Parallel()
	pool, g := guardOn(t)
	runs := 0
	require.NoError(t, guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
		if err := statement("savepoint a; "+addOne+"; rollback to a; "+addOne+"; select case when true then 1 end")(ctx, tx); err != nil {
			return err
		}
		if runs++; runs == 1 {
			return statement("do $$ begin raise exception 'again' using errcode = '40001'; end $$")(ctx, tx)
		}
		return nil
	}, guard.Retryable()))
	require.Equal(t, 2, runs)
	holds(t, pool, "x", 1)
}
