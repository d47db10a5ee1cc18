package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// member runs op as a member of txn.
func member(ctx context.Context, txn storage.Txn[pgx.Tx], op storage.Op[pgx.Tx]) error {
	return txn.RunMember(ctx, context.Background(), op)
}

// A member's deferred constraints are its own affair, at the end of its own run: neither does
// another one fail on them, nor do they stay immediate for it.
func TestMember_DeferredConstraintsAreItsOwn(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	mustExec(t, pool, `create table part (item text constraint "of item" references item deferrable initially deferred)`)
	mustExec(t, pool, "create table later (item text constraint later_item references item deferrable)")
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	child := func(key string, value int64) storage.Func[pgx.Tx] {
		return func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(statement("insert into part values ($1)", key)(ctx, tx), set(key, value)(ctx, tx))
		}
	}
	require.NoError(t, member(t.Context(), txn, child("a", 1)))
	require.ErrorContains(t, member(t.Context(), txn, statement("insert into part values ('missing')")), "23503")
	require.NoError(t, txn.Over())
	require.NoError(t, member(t.Context(), txn, child("b", 2)), "the child before its parent")
	require.NoError(t, member(t.Context(), txn, statement("set constraints later_item deferred; insert into later values ('c'); insert into item values ('c', 3)")))
	require.False(t, txn.Last())
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, query[int64](t, pool, "select count(*) from part"))
}

// A member that changes a setting is the last: the next one would have it.
func TestMember_SettingsAreItsOwn(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"set local work_mem = '1MB'", "set search_path = pg_catalog", "reset statement_timeout", "reset all"} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			store := newStore(t, newPool(t), nil)
			txn := begin(t, store, claim(t, store, grant(5, "a")))
			require.NoError(t, member(t.Context(), txn, set("x", 1)))
			require.False(t, txn.Last())
			require.NoError(t, member(t.Context(), txn, statement(change)))
			require.True(t, txn.Last())
			_, err := txn.Commit(t.Context(), nil)
			require.NoError(t, err)
		})
	}
}

// A constraint that came when the members had begun is checked by the seal, for all of them.
func TestMember_ConstraintMadeMeanwhileIsChecked(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, member(t.Context(), txn, statement("select 1")))
	mustExec(t, pool, "create table part (item text references item deferrable initially deferred)")
	require.NoError(t, member(t.Context(), txn, statement("insert into part values ('missing')")))
	_, err := txn.Commit(t.Context(), nil)
	require.ErrorContains(t, err, "23503")
	require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, store))
}

// One that was dropped when the members had begun can't be deferred again: the members may run again.
func TestMember_ConstraintDroppedMeanwhileIsTransient(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	mustExec(t, pool, "create table part (item text references item deferrable initially deferred)")
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	err := member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
		defer mustExec(t, pool, "drop table part")
		return statement("select 1")(ctx, tx)
	}))
	require.ErrorContains(t, err, "42704")
	require.ErrorAs(t, err, new(*postgres.TransientError))
	require.ErrorAs(t, txn.Over(), new(*postgres.TransientError))
	txn.Rollback(t.Context())
}

// Of two constraints with one name neither can be named alone: so no member follows.
func TestMember_IsTheLastIfConstraintsCannotBeReset(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	mustExec(t, pool, `create table part (item text constraint of_item references item deferrable initially deferred);
		create table other (item text constraint of_item references item)`)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, member(t.Context(), txn, set("x", 1)))
	require.True(t, txn.Last())
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
}

// What a member's SQL does to the transaction of all is found, and no member is told that its
// work was undone if that may stay.
func TestMember_EndsTheTransactionBySQL(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"commit", "rollback", "commit and chain", "rollback and chain", "commit; begin", "rollback; begin", "commit; begin; savepoint x"} {
		for _, end := range []string{"nil", "error", "panic"} {
			t.Run(sql+" "+end, func(t *testing.T) {
				t.Parallel()
				pool := newPool(t)
				store := newStore(t, pool, nil)
				txn := begin(t, store, claim(t, store, grant(5, "a")))
				require.NoError(t, member(t.Context(), txn, set("mate", 1)))
				func() {
					defer func() { _ = recover() }()
					err := member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
						_, _ = tx.Exec(ctx, sql)
						switch end {
						case "error":
							return errors.New("sold out")
						case "panic":
							panic("boom")
						}
						return nil
					}))
					require.ErrorIs(t, err, storage.ErrTxEnded)
				}()
				require.ErrorIs(t, txn.Over(), storage.ErrTxEnded)
				_, err := txn.Commit(t.Context(), nil)
				require.ErrorIs(t, err, storage.ErrTxEnded)
				require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, store))
			})
		}
	}
}

// The savepoints of other members are out of reach, also that of the next one.
func TestMember_CannotUndoAnother(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, member(t.Context(), txn, statement("savepoint mine")))
	require.NoError(t, member(t.Context(), txn, set("x", 1)))
	require.ErrorContains(t, member(t.Context(), txn, statement("rollback to savepoint mine")), "3B001")
	require.NoError(t, txn.Over())
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	holds(t, pool, "x", 1)
}

// The end of a member's context interrupts no statement, which would end the transaction for
// all: the server bounds it.
func TestMember_DeadlineIsTheServers(t *testing.T) {
	t.Parallel()
	caller, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	pool := openPool(t, migrated(t), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { giveUp() }
	})
	store := newStore(t, pool, &postgres.Config{LockTimeout: time.Minute, StatementTimeout: time.Minute})
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, member(t.Context(), txn, set("x", 1)))
	const sleep = "do $$ begin raise notice 'under way'; perform pg_sleep(60); end $$"
	require.NoError(t, caller.Err())
	require.ErrorContains(t, member(soon{caller, 100 * time.Millisecond}, txn, statement(sleep)), "57014")
	require.NoError(t, txn.Over())
	ended, end := context.WithCancel(t.Context())
	require.ErrorIs(t, member(ended, txn, do(func(ctx context.Context, tx pgx.Tx) error {
		end()
		return set("x", 2)(ctx, tx)
	})), context.Canceled)
	require.NoError(t, member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
		var timeout string
		err := tx.QueryRow(ctx, "show statement_timeout").Scan(&timeout)
		if timeout != "1min" {
			return fmt.Errorf("statement_timeout is %s after another member's", timeout)
		}
		return err
	})))
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	holds(t, pool, "x", 1)
}

// A member whose caller gives up while its statement waits fails when that has ended, and the
// transaction goes on.
func TestMember_WhoseCallerGivesUpInterruptsNoStatement(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, &postgres.Config{LockTimeout: time.Minute, StatementTimeout: time.Minute})
	mustExec(t, pool, "insert into item values ('y', 0)")
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	_, err = other.Exec(t.Context(), "select from item where key = 'y' for update")
	require.NoError(t, err)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, member(t.Context(), txn, set("x", 1)))
	ctx, giveUp := context.WithCancel(t.Context())
	waits := background(func() (any, error) { return nil, member(ctx, txn, set("y", 2)) })
	eventually(t, pool, "select count(*) = 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	giveUp()
	require.NoError(t, other.Rollback(t.Context()))
	require.ErrorIs(t, (<-waits).err, context.Canceled)
	_, err = txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	holds(t, pool, "x", 1)
	holds(t, pool, "y", 0)
}

// The bound of a member that succeeds ends with it as well.
func TestMember_DeadlineOfOneThatSucceedsEndsWithIt(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, &postgres.Config{StatementTimeout: time.Hour})
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	show := func(timeout *string) storage.Func[pgx.Tx] {
		return func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "show statement_timeout").Scan(timeout)
		}
	}
	var during, after string
	require.NoError(t, member(ctx, txn, show(&during)))
	require.NoError(t, member(t.Context(), txn, show(&after)))
	require.NotEqual(t, "1h", during)
	require.Equal(t, "1h", after)
}

// A serialization failure is the transaction's under SERIALIZABLE, where COMMIT could not
// succeed any more, and the member's own otherwise.
func TestMember_SerializationFailure(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			mustExec(t, pool, "insert into item values ('x', 0), ('y', 0)")
			store := newStore(t, pool, at(level))
			txn := begin(t, store, claim(t, store, grant(5, "a")))
			require.NoError(t, member(t.Context(), txn, set("y", 1)))
			err := member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
				mustExec(t, pool, "update item set value = 7 where key = 'x'")
				return set("x", 1)(ctx, tx)
			}))
			require.ErrorAs(t, err, new(*postgres.TransientError))
			if level == pgx.Serializable {
				require.Error(t, txn.Over())
				return
			}
			require.NoError(t, txn.Over())
			_, err = txn.Commit(t.Context(), nil)
			require.NoError(t, err)
			holds(t, pool, "y", 1)
		})
	}
}

// A lock timeout is the member's own. Who holds the lock may be stale, and is evicted once the
// transaction has ended: with a pool of one connection there is none before.
func TestMember_LockTimeoutEvictsAtTheEnd(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, openPool(t, pool.Config().ConnString(), single), &postgres.Config{LockTimeout: 50 * time.Millisecond, EvictTimeout: time.Minute})
	stale := newStore(t, pool, patient())
	old := begin(t, stale, claim(t, stale, grant(5, "stale")))
	require.NoError(t, old.Run(t.Context(), set("x", 1)))
	txn := begin(t, store, claimOnly(t, pool, grant(6, "a")))
	require.ErrorContains(t, member(t.Context(), txn, set("x", 2)), "55P03")
	require.NoError(t, member(t.Context(), txn, set("y", 2)))
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.Zero(t, query[int64](t, pool, "select count(*) from pg_locks where locktype = 'advisory' and objid = 5 and database = (select oid from pg_database where datname = current_database())"))
	holds(t, pool, "y", 2)
}

// A connection that is still in use ends the transaction for all.
func TestMember_LeavesARowsOpen(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, member(t.Context(), txn, set("x", 1)))
	require.Error(t, member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Query(ctx, "select generate_series(1, 10)")
		return err
	})))
	require.Error(t, txn.Over())
	_, err := txn.Commit(t.Context(), nil)
	require.Error(t, err)
	holds(t, pool, "x", 0)
}

// Nested transactions, batches and copies of a member go through its context as well.
func TestMember_TxDoesAllThatATxDoes(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, member(t.Context(), txn, do(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"key", "value"}, pgx.CopyFromRows([][]any{{"copied", int64(1)}}))
		require.NoError(t, err)
		inner, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("kept", 1)(ctx, inner))
		require.NoError(t, inner.Commit(ctx))
		inner, err = tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("kept", 2)(ctx, inner))
		require.NoError(t, inner.Rollback(ctx))
		b := &pgx.Batch{}
		b.Queue("insert into item values ('batched', 1)")
		require.NoError(t, tx.SendBatch(ctx, b).Close())
		_, err = tx.Prepare(ctx, "prepared", "insert into item values ('prepared', 1)")
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "prepared")
		require.NoError(t, err)
		var n int
		require.NoError(t, tx.QueryRow(ctx, "select count(*) from item").Scan(&n))
		require.Equal(t, 4, n)
		ended, end := context.WithCancel(ctx)
		end()
		_, err = tx.Exec(ended, "select 1")
		require.ErrorIs(t, err, context.Canceled, "and begins nothing under a context that has ended")
		return nil
	})))
	require.NoError(t, txn.Over())
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	holds(t, pool, "kept", 1)
}
