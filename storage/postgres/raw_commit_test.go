package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

var enders = []string{
	"commit",
	"rollback",
	"commit and chain",
	"commit; begin",
	"rollback; begin",
	"commit; discard all; begin",
	"commit; begin; select set_config('fencekit.xid', pg_current_xact_id()::text, true)",
}

var forgers = []string{
	"commit; begin; select set_config('fencekit.xid', 'forged', true)",
	"commit; begin; select set_config('fencekit.xid', current_setting('fencekit.read'), true)",
	"commit; begin read only; select set_config('fencekit.xid', 'forged', true)",
	"commit; begin read only",
	"reset all",
}

func TestRawCommit_IsNeverSuccess(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, migrated(t), inMode(mode))
			store := newStore(t, pool, nil)
			c := claim(t, store, grant(5, "a"))
			for _, sql := range enders {
				for how, send := range methods {
					name := fmt.Sprintf("%s by %s", sql, how)
					_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
						_ = set("x", 1)(ctx, tx)
						send(ctx, tx, sql)
						_ = set("x", 2)(ctx, tx)
						return nil
					}), c)
					require.Error(t, err, name)
					require.NotErrorAs(t, err, new(*storage.InDoubtError), name)
					require.Equal(t, c, claim(t, store, c.Grant), name)
				}
			}
			require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, store))
			require.LessOrEqual(t, query[int](t, pool, "select coalesce(max(value), 0) from item"), 1, "nothing behind it commits")
			mustExec(t, pool, "truncate item")
			for _, sql := range slices.Concat(enders, forgers) {
				require.ErrorIs(t, read(t.Context(), store, statement(sql), c), storage.ErrTxEnded, sql)
				for how, send := range methods {
					require.Error(t, read(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
						_ = get("x", new(int64))(ctx, tx)
						send(ctx, tx, sql)
						_ = set("x", 1)(ctx, tx)
						return nil
					}), c), "%s by %s", sql, how)
				}
			}
			holds(t, pool, "x", 0)
			require.Equal(t, c, claim(t, store, c.Grant))
		})
	}
}

func TestPrepareTransaction_IsRejectedAndNeverSuccess(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, map[string]string{"max_prepared_transactions": "4"})
	pool := openPool(t, dsn)
	_, err := newStore(t, pool, nil).Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
	requireNotReady(t, err, postgres.Unsupported)
	require.ErrorContains(t, err, "AllowPreparedTransactions")

	store := newStore(t, pool, &postgres.Config{AllowPreparedTransactions: true})
	c := claim(t, store, grant(5, "a"))
	for how, send := range methods {
		for _, sql := range []string{"prepare transaction 'p'", "prepare transaction 'p'; begin"} {
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				_ = set(how, 1)(ctx, tx)
				send(ctx, tx, sql)
				return nil
			}), c)
			require.Error(t, err, how)
			require.Equal(t, c, claim(t, store, c.Grant), how)
			_, _ = pool.Exec(t.Context(), "rollback prepared 'p'")
		}
	}
	_, err = attempt(t.Context(), store, statement("prepare transaction 'p'"), c)
	require.ErrorIs(t, err, storage.ErrTxEnded)
	claim(t, store, grant(6, "b"))
	mustExec(t, pool, "rollback prepared 'p'")
}

// Where the server can't be asked, a text of several statements may have committed: the
// function doesn't run again. Of a transaction that only reads nothing can tell.
func TestRun_AnUnknownCommitIsNotTransient(t *testing.T) {
	t.Parallel()
	for sql, again := range map[string]bool{"select 1": true, "select 1; select 2": false} {
		var cut atomic.Bool
		pool := openPool(t, migrated(t), single, func(cfg *pgxpool.Config) {
			cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
				if cut.Load() {
					return errors.New("away")
				}
				return nil
			}
		})
		store := newStore(t, pool, nil)
		c := claim(t, store, grant(5, "a"))
		ends := do(func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, statement(sql)(ctx, tx))
			cut.Store(true)
			return statement("select pg_terminate_backend(pg_backend_pid())")(ctx, tx)
		})
		_, err := attempt(t.Context(), store, ends, c)
		cut.Store(false)
		for _, err := range []error{err, read(t.Context(), store, ends, c)} {
			require.ErrorContains(t, err, "57P01")
			require.Equal(t, again, errors.As(err, new(*postgres.TransientError)), sql)
		}
	}
}

// A transaction can't be ended by the name of a prepared statement, which no text shows.
func TestPrepare_RefusesTransactionControl(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"commit and chain", " ;/* */ ROLLBACK", "begin", "prepare transaction 'p'"} {
		pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, set("x", 1)(ctx, tx))
			_, err := tx.Prepare(ctx, "x", sql)
			require.ErrorIs(t, err, guard.ErrInvalid)
			_, err = tx.Exec(ctx, "x")
			require.Error(t, err)
			return nil
		})
		require.ErrorIs(t, err, guard.ErrInvalid, sql)
		holds(t, pool, "x", 0)
	}
	_, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		for name, sql := range map[string]string{"add": addOne, "to": "rollback to savepoint a"} {
			if _, err := tx.Prepare(ctx, name, sql); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// A COMMIT whose answer was lost is found to have taken no effect, since the seal's position is
// still free. What the function committed itself stays, also where its own texts and calls don't show that:
// then the answers of the server do. So nothing runs again.
func TestRun_ACommitOfItsOwnBeforeALostSeal(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]storage.Func[pgx.Tx]{
		"commit":   statement("commit; begin"),
		"rollback": statement(own),
		"by name":  statement("ends"),
		"behind a callback that failed": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("select 1").Exec(func(pgconn.CommandTag) error { return errors.New("mine") })
			b.Queue("ends")
			require.ErrorContains(t, tx.SendBatch(ctx, b).Close(), "mine")
			return nil
		},
		"in another encoding": func(ctx context.Context, tx pgx.Tx) error {
			if err := statement("set local client_encoding = 'SJIS'")(ctx, tx); err != nil {
				return err
			}
			return statement(`select E'Á\'; commit and chain; select 1; --'`)(ctx, tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted, single, func(cfg *pgxpool.Config) {
				cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					_, err := conn.Prepare(ctx, "ends", "commit and chain")
					return err
				}
			})
			f.onQuery(pgproxy.SwallowCommit(), closeAll)
			err := guard.Do(t.Context(), newGuard(t, f.store), resource, func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(statement(addOne)(ctx, tx), fn(ctx, tx))
			}, guard.Retryable())
			require.ErrorIs(t, err, guard.ErrTxEnded)
			require.False(t, guard.SafeToRetry(err))
			holds(t, f.pool, "x", 1)
		})
	}
}

const own = "rollback; begin read write; " + addOne + "; commit; begin"

const addOne = "insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1"

// After a ROLLBACK of the function's own the transaction that the begin check has seen is
// aborted, and what a later one of the function's committed stays. So nothing runs again, and no
// error says that it may, whatever the function then fails with.
func TestRun_ARollbackBeforeAFailureIsReported(t *testing.T) {
	t.Parallel()
	pool, g := guardOn(t)
	const conflict, ended = "do $$ begin raise exception 'again' using errcode = '40001'; end $$", "select pg_terminate_backend(pg_backend_pid())"
	leave := map[string]storage.Func[pgx.Tx]{
		"commit": statement("commit; begin read write; " + addOne + "; commit; begin"),
		"text":   statement(own),
		"rewriter": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 1", pgx.QueryExecModeSimpleProtocol, sends(own))
			return err
		},
		"batch": func(ctx context.Context, tx pgx.Tx) error { // whose answers show the COMMIT
			b := &pgx.Batch{}
			for _, sql := range []string{"rollback", "begin read write", addOne, "commit", "begin"} {
				b.Queue(sql)
			}
			return tx.SendBatch(ctx, b).Close()
		},
	}
	for _, c := range []struct {
		how, failure string
		options      []guard.Option
	}{
		{"commit", conflict, nil}, {"text", conflict, nil}, {"rewriter", conflict, nil}, {"batch", conflict, nil}, {"text", ended, nil},
		{"text", conflict, []guard.Option{guard.ReadOnly()}}, {"text", ended, []guard.Option{guard.ReadOnly()}}, {"batch", conflict, []guard.Option{guard.ReadOnly()}},
	} {
		t.Run(fmt.Sprintf("%s, %s, %d", c.how, c.failure, len(c.options)), func(t *testing.T) {
			mustExec(t, pool, "delete from item")
			unseen := false
			err := guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
				if err := errors.Join(statement("select 1")(ctx, tx), leave[c.how](ctx, tx)); err != nil {
					return err
				}
				unseen = true
				return statement(c.failure)(ctx, tx)
			}, append(c.options, guard.Retryable())...)
			require.ErrorIs(t, err, guard.ErrTxEnded)
			require.ErrorContains(t, err, "your function sent COMMIT or ROLLBACK, whose effects are permanent and unfenced: return nil or an error instead")
			if unseen {
				require.ErrorContains(t, err, map[string]string{conflict: "40001", ended: "57P01"}[c.failure])
			}
			require.False(t, guard.SafeToRetry(err))
			holds(t, pool, "x", 1)
		})
	}
}

// A batch ends its transaction, and has the next one take the place of that for the seal and the read
// check, which know it by a setting as all goes out in one write.
func TestRawCommit_AnotherTransactionIsNotTakenForTheOne(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t), nil)
	forge := func(begin string) storage.Op[pgx.Tx] {
		var b postgres.Batch
		for _, sql := range []string{"commit", begin, "select set_config('fencekit.xid', case current_setting($$transaction_read_only$$) when $$on$$ then $$forged$$ else pg_current_xact_id()::text end, true)"} {
			b.Exec("", sends(sql))
		}
		return &b
	}
	c := claim(t, store, grant(5, "a"))
	require.ErrorContains(t, read(t.Context(), store, forge("begin read only"), c), "no answer to the read check")
	_, err := attempt(t.Context(), store, forge("begin"), c)
	require.ErrorIs(t, err, storage.ErrTxEnded)
}
