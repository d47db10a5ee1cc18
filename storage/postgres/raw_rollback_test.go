package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// unfenced sends SQL that leaves the guarded transaction, adds one in another
// transaction that it commits, and begins a third one.
var unfenced = map[string]func(ctx context.Context, tx pgx.Tx) error{
	"commit":  statement("commit; begin read write; " + addOne + "; commit; begin"),
	"text":    statement(own),
	"comment": statement("select 1; /* ; */ rollback; -- ;\n begin read write; " + addOne + "; commit; begin"),
	"a literal, as the store reads it": func(ctx context.Context, tx pgx.Tx) error {
		if err := statement("set local standard_conforming_strings = off")(ctx, tx); err != nil {
			return err
		}
		return statement(`select '\''; rollback; begin read write; `+addOne+`; commit; begin; --'`)(ctx, tx)
	},
	"tag, emoji":  statement("select $🙂$'$🙂$; " + own + "; select ''"),
	"continued E": statement("select '\\' as \"'\", E'a'\n'\\''; " + own + "; select ''"),
	"another encoding, as UTF-8": func(ctx context.Context, tx pgx.Tx) error {
		if err := statement("set local client_encoding = 'SJIS'")(ctx, tx); err != nil {
			return err
		}
		return statement(`select E'Á\'; `+own+`; select ''`)(ctx, tx)
	},
	"rewriter": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select 1", pgx.QueryExecModeSimpleProtocol, sends(own))
		return err
	},
	"batch": func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		for _, sql := range []string{"rollback", "begin read write", addOne, "commit", "begin"} {
			b.Queue(sql)
		}
		return tx.SendBatch(ctx, b).Close()
	},
}

// own leaves the guarded transaction and commits another one.
const own = "rollback; begin read write; " + addOne + "; commit; begin"

const addOne = "insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1"

// After a ROLLBACK of the function's own the transaction that the begin check has seen is
// aborted, and what a later one of the function's committed stays. So nothing runs again, and no
// error says that it may, whatever the function then fails with.
func TestRun_ARollbackBeforeAFailureIsReported(t *testing.T) {
	t.Parallel()
	pool, g := guardOn(t)
	for how, leave := range unfenced {
		for _, mode := range []struct {
			name    string
			options []guard.Option
		}{{"write", nil}, {"read only", []guard.Option{guard.ReadOnly()}}} {
			for failure, sql := range map[string]string{
				"40001": "do $$ begin raise exception 'again' using errcode = '40001'; end $$",
				"57P01": "select pg_terminate_backend(pg_backend_pid())",
			} {
				if (mode.options != nil || failure == "57P01") && how != "text" && how != "batch" {
					continue
				}
				t.Run(how+", "+mode.name+", "+failure, func(t *testing.T) {
					mustExec(t, pool, "delete from item")
					unseen := false
					err := guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
						if err := statement("select 1")(ctx, tx); err != nil {
							return err
						}
						if err := leave(ctx, tx); err != nil {
							return err // of a batch, whose answers show the COMMIT
						}
						unseen = true
						return statement(sql)(ctx, tx)
					}, append(mode.options, guard.Retryable())...)
					require.ErrorIs(t, err, guard.ErrTxEnded)
					if unseen {
						require.ErrorContains(t, err, failure)
					}
					require.False(t, guard.SafeToRetry(err))
					holds(t, pool, "x", 1)
				})
			}
		}
	}
}

// A COMMIT whose answer was lost is found to have taken no effect, since the seal's position is
// still free. What the function committed itself stays.
func TestRun_ACommitOfItsOwnBeforeALostSeal(t *testing.T) {
	t.Parallel()
	for leave, fn := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"commit":   statement(addOne + "; commit; begin"),
		"rollback": statement(own),
	} {
		t.Run(leave, func(t *testing.T) {
			t.Parallel()
			pool, proxy, store, _ := behindPooler(t)
			var lost atomic.Bool
			proxy.OnQuery(func(sql string) *pgproxy.Action {
				if strings.Contains(sql, ".seal(") && !lost.Swap(true) {
					return pgproxy.SwallowReply()
				}
				return nil
			})
			g := guardtest.New(t, storage.Store[pgx.Tx](store))
			err := guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
				if err := statement("select 1")(ctx, tx); err != nil {
					return err
				}
				return fn(ctx, tx)
			}, guard.Retryable())
			require.ErrorIs(t, err, guard.ErrTxEnded)
			require.False(t, guard.SafeToRetry(err))
			holds(t, pool, "x", 1)
		})
	}
}

// So it is if the COMMIT was a batch's, from a rewriter.
func TestRun_ACommitOfABatchBeforeALostSeal(t *testing.T) {
	t.Parallel()
	pool, proxy, store, _ := behindPooler(t)
	var lost atomic.Bool
	proxy.OnQuery(func(sql string) *pgproxy.Action {
		if strings.Contains(sql, ".seal(") && !lost.Swap(true) {
			return pgproxy.SwallowReply()
		}
		return nil
	})
	g := guardtest.New(t, storage.Store[pgx.Tx](store))
	var b postgres.Batch
	b.Exec(addOne)
	b.Exec("select 1", sends("commit"))
	err := guard.Exec(t.Context(), g, resource, &b)
	require.ErrorIs(t, err, guard.ErrTxEnded)
	require.False(t, guard.SafeToRetry(err))
	holds(t, pool, "x", 1)
}

// A text without COMMIT and ROLLBACK leaves an error what it is, also if it has several statements.
func TestRun_SeveralStatementsLeaveAFailureTransient(t *testing.T) {
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
