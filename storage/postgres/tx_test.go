package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func guarded(t *testing.T, op storage.Func[pgx.Tx]) (*pgxpool.Pool, error) {
	t.Helper()
	pool, store := fresh(t, nil)
	_, err := attempt(t.Context(), store, op, claim(t, store, grant(5, "a")))
	return pool, err
}

func TestTx_CannotBeEndedByItsMethods(t *testing.T) {
	t.Parallel()
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		require.ErrorIs(t, tx.Commit(ctx), fence.ErrInvalid)
		require.ErrorIs(t, tx.Rollback(ctx), fence.ErrInvalid)
		batch := &pgx.Batch{}
		batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.Serializable})
		batch.Queue("insert into item values ('batch', 1)")
		results := tx.SendBatch(ctx, batch)
		require.ErrorIs(t, results.Tx().Commit(ctx), pgx.ErrTxClosed)
		require.ErrorIs(t, results.Close(), fence.ErrInvalid)
		return set("x", 1)(ctx, tx)
	})
	require.NoError(t, err)
	holds(t, pool, "x", 1)
}

// With the connection an operation could bypass the guard. It gets a closed one, with the types of the real one.
func TestTx_HidesItsConnection(t *testing.T) {
	t.Parallel()
	var real *pgx.Conn
	pool := openPool(t, migrated(t), single, func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			real = conn
			conn.TypeMap().RegisterType(&pgtype.Type{Name: "fruit", OID: 1 << 20, Codec: pgtype.TextCodec{}})
			return nil
		}
	})
	store := newStore(t, pool, nil)
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		shown := tx.Conn()
		require.NotSame(t, real, shown)
		require.True(t, shown.IsClosed())
		require.ErrorContains(t, shown.Ping(ctx), "conn closed")
		require.Equal(t, real.Config().ConnString(), shown.Config().ConnString())
		_, ok := shown.TypeMap().TypeForName("fruit")
		require.True(t, ok)
		shown.TypeMap().RegisterType(&pgtype.Type{Name: "own", OID: 1<<20 + 1, Codec: pgtype.TextCodec{}})
		_, ok = real.TypeMap().TypeForName("own")
		require.False(t, ok)
		nested, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.Same(t, shown, nested.Conn())
		hides := func(rows pgx.Rows, err error) {
			require.NoError(t, err)
			require.Nil(t, rows.Conn())
			rows.Close()
		}
		hides(tx.Query(ctx, "select 1"))
		batch := queued("select 1")
		batch.Queue("select 2").Query(func(rows pgx.Rows) error { hides(rows, nil); return nil })
		results := tx.SendBatch(ctx, batch)
		require.Nil(t, results.Tx())
		hides(results.Query())
		return results.Close()
	}))
}

func TestTx_TakesWhatPgxHas(t *testing.T) {
	t.Parallel()
	type item struct {
		Key   string
		Value int64
	}
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"key", "value"}, pgx.CopyFromRows([][]any{{"copied", int64(1)}, {"copied too", int64(2)}}))
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		rows, err := tx.Query(ctx, "select key, value from item order by key")
		require.NoError(t, err)
		items, err := pgx.CollectRows(rows, pgx.RowToStructByName[item])
		require.NoError(t, err)
		require.Equal(t, []item{{"copied", 1}, {"copied too", 2}}, items)
		require.EqualValues(t, 2, rows.CommandTag().RowsAffected())
		require.ErrorIs(t, tx.QueryRow(ctx, "select value from item where key = 'no'").Scan(&n), pgx.ErrNoRows)

		return pgx.BeginFunc(ctx, tx, func(outer pgx.Tx) error {
			inner, err := outer.Begin(ctx)
			require.NoError(t, err)
			require.Error(t, errors.Join(set("inner", 1)(ctx, inner), statement("select 1/0")(ctx, inner)))
			require.ErrorIs(t, inner.Commit(ctx), pgx.ErrTxCommitRollback)
			return set("outer", 1)(ctx, outer)
		})
	})
	require.NoError(t, err)
	for key, value := range map[string]int64{"copied": 1, "outer": 1, "inner": 0} {
		holds(t, pool, key, value)
	}
}

// methods send SQL in each way that a pgx.Tx has, and swallow all errors.
var methods = map[string]func(ctx context.Context, tx pgx.Tx, sql string){
	"Exec": func(ctx context.Context, tx pgx.Tx, sql string) { _, _ = tx.Exec(ctx, sql) },
	"Query, closed": func(ctx context.Context, tx pgx.Tx, sql string) {
		rows, _ := tx.Query(ctx, sql)
		rows.Close()
	},
	"Query, read": func(ctx context.Context, tx pgx.Tx, sql string) {
		rows, _ := tx.Query(ctx, sql)
		for rows.Next() {
		}
	},
	"Query, simple": func(ctx context.Context, tx pgx.Tx, sql string) {
		rows, _ := tx.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		rows.Close()
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx, sql string) { _ = tx.QueryRow(ctx, sql).Scan(new(any)) },
	"CopyFrom": func(ctx context.Context, tx pgx.Tx, sql string) {
		_, _ = tx.CopyFrom(ctx, pgx.Identifier{"run"}, []string{"sql"}, pgx.CopyFromRows([][]any{{sql}}))
	},
	"SendBatch, closed": func(ctx context.Context, tx pgx.Tx, sql string) { _ = tx.SendBatch(ctx, queued(sql)).Close() },
	"SendBatch, Exec": func(ctx context.Context, tx pgx.Tx, sql string) {
		results := tx.SendBatch(ctx, queued(sql))
		_, _ = results.Exec()
		_ = results.Close()
	},
	"SendBatch, Query": func(ctx context.Context, tx pgx.Tx, sql string) {
		results := tx.SendBatch(ctx, queued(sql))
		rows, _ := results.Query()
		rows.Close()
		_ = results.Close()
	},
	"SendBatch, QueryRow": func(ctx context.Context, tx pgx.Tx, sql string) {
		results := tx.SendBatch(ctx, queued(sql))
		_ = results.QueryRow().Scan(new(any))
		_ = results.Close()
	},
	"SendBatch, callback": func(ctx context.Context, tx pgx.Tx, sql string) {
		batch := queued(sql)
		batch.QueuedQueries[0].QueryRow(func(row pgx.Row) error { _ = row.Scan(new(any)); return nil })
		_ = tx.SendBatch(ctx, batch).Close()
	},
	"prepared": func(ctx context.Context, tx pgx.Tx, sql string) {
		if _, err := tx.Prepare(ctx, "named "+sql, sql); err == nil {
			_, _ = tx.Exec(ctx, "named "+sql)
		}
	},
	"Begin": func(ctx context.Context, tx pgx.Tx, sql string) {
		if savepoint, err := tx.Begin(ctx); err == nil {
			_, _ = savepoint.Exec(ctx, sql)
		}
	},
}

func queued(sql string) *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(sql)
	return batch
}

// The server would wait for the rows for ever, and no timeout reaches that.
func TestTx_RefusesCopyAsText(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	for how, send := range map[string]func(ctx context.Context, tx pgx.Tx, sql string) error{
		"Exec": func(ctx context.Context, tx pgx.Tx, sql string) error { return statement(sql)(ctx, tx) },
		"with options": func(ctx context.Context, tx pgx.Tx, sql string) error {
			return statement(sql, pgx.QueryExecModeExec)(ctx, tx)
		},
		"rewritten": func(ctx context.Context, tx pgx.Tx, sql string) error {
			return statement("select 1", sends(sql))(ctx, tx)
		},
		"Query": func(ctx context.Context, tx pgx.Tx, sql string) error {
			rows, _ := tx.Query(ctx, sql)
			rows.Close()
			return rows.Err()
		},
		"QueryRow":  func(ctx context.Context, tx pgx.Tx, sql string) error { return tx.QueryRow(ctx, sql).Scan(new(any)) },
		"SendBatch": func(ctx context.Context, tx pgx.Tx, sql string) error { return tx.SendBatch(ctx, queued(sql)).Close() },
		"SendBatch, rewritten": func(ctx context.Context, tx pgx.Tx, sql string) error {
			batch := &pgx.Batch{}
			batch.Queue("select 1", sends(sql))
			return tx.SendBatch(ctx, batch).Close()
		},
		"Prepare": func(ctx context.Context, tx pgx.Tx, sql string) error {
			_, err := tx.Prepare(ctx, "copy", sql)
			return err
		},
		"a savepoint": func(ctx context.Context, tx pgx.Tx, sql string) error {
			return pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error { return statement(sql)(ctx, nested) })
		},
	} {
		for _, sql := range []string{"copy item to stdout", "copy item from stdin", "select 1; /* all */ COPY item (key) FROM STDIN"} {
			for _, first := range []bool{true, false} {
				c = write(t, store, c, do(func(ctx context.Context, tx pgx.Tx) error {
					if !first {
						require.NoError(t, set("x", 1)(ctx, tx))
					}
					err := send(ctx, tx, sql)
					require.ErrorIs(t, err, guard.ErrInvalid, how)
					require.ErrorContains(t, err, "CopyFrom", how)
					require.False(t, guard.SafeToRetry(err), how)
					return add("n", 1)(ctx, tx)
				}))
			}
		}
	}
	holds(t, pool, "n", 9*3*2)
}

// createRun makes a table that runs the SQL that is inserted into it.
const createRun = `create table run (sql text);
	create function run() returns trigger language plpgsql as $$ begin execute new.sql; return null; end $$;
	create trigger run before insert on run for each row execute function run()`

func TestRun_SwallowedFailureDoesNotCommit(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	mustExec(t, pool, createRun)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	fail := maps.Clone(methods)
	fail["Prepare"] = func(ctx context.Context, tx pgx.Tx, _ string) { _, _ = tx.Prepare(ctx, "p", "select 1/'x'") }
	for name, send := range fail {
		t.Run(name, func(t *testing.T) {
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				require.NoError(t, set("x", 1)(ctx, tx))
				send(ctx, tx, "select 1/0")
				_, err := tx.Exec(ctx, "select 1")
				require.ErrorContains(t, err, "25P02")
				return nil
			}), c)
			require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
			require.ErrorContains(t, err, "did not return its error: ERROR: ", "and which one")
			require.NotContains(t, err.Error(), "25P02")
			holds(t, pool, "x", 0)
		})
	}
}

type scanner func()

func (s scanner) Scan(any) error { s(); return nil }

// A result that is still open when COMMIT goes out could hold up the seal after
// a client that doesn't read. One that is used by two calls at a time may seem to have ended.
func TestRun_OpenResultsDoNotCommit(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(ctx context.Context, tx pgx.Tx){
		"rows": func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Query(ctx, "select generate_series(1, 10)") },
		"row":  func(ctx context.Context, tx pgx.Tx) { _ = tx.QueryRow(ctx, "select 1") },
		"batch": func(ctx context.Context, tx pgx.Tx) {
			batch := &pgx.Batch{}
			batch.Queue("select 1")
			_ = tx.SendBatch(ctx, batch)
		},
		"rows that seem to end in a call of their own": func(ctx context.Context, tx pgx.Tx) {
			rows, _ := tx.Query(ctx, "select generate_series(1, 2)")
			rows.Next()
			_ = rows.Scan(scanner(func() { require.False(t, rows.Next()) }))
			rows.Close()
		},
		"a batch in its callback": func(ctx context.Context, tx pgx.Tx) {
			var results pgx.BatchResults
			batch := &pgx.Batch{}
			batch.Queue("select 1").Query(func(pgx.Rows) error { _, _ = results.Exec(); return nil })
			results = tx.SendBatch(ctx, batch)
			_ = results.Close()
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

func TestTx_IsUselessAfterTheOperation(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	mustExec(t, pool, createRun)
	store := newStore(t, pool, nil)
	var kept, savepoint pgx.Tx
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) (err error) {
		kept = tx
		savepoint, err = tx.Begin(ctx)
		return err
	}))
	for _, tx := range []pgx.Tx{kept, savepoint} {
		for _, send := range methods {
			send(t.Context(), tx, "insert into item values ('late', 1)")
		}
		require.ErrorIs(t, set("late", 1)(t.Context(), tx), storage.ErrTxEnded)
		late := tx.LargeObjects()
		_, err := late.Create(t.Context(), 4711)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
	}
	holds(t, pool, "late", 0)
	require.Zero(t, query[int](t, pool, "select count(*) from pg_largeobject_metadata"))
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

// Else Fencekit's transactions would evict the application's statements from pg_stat_statements.
func TestStatements_AreTheSameInEachTransaction(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, map[string]string{"shared_preload_libraries": "pg_stat_statements"})
	pool := openPool(t, dsn)
	mustExec(t, pool, "create extension pg_stat_statements")
	store := newStore(t, pool, nil)
	store.TakeForNoneDeferrable()
	store.TakeForUnlisted()
	calls := func() int {
		for i := range 3 {
			c := claim(t, store, grant(fence.Token(query[int64](t, pool, "select nextval('fence.lock_token')")), "a"))
			c = write(t, store, write(t, store, c, set("x", int64(i))), inserts(rand.Text()))
			require.NoError(t, read(t.Context(), store, statement("select 1"), c))
			_, err := attempt(t.Context(), store, do(func(context.Context, pgx.Tx) error { return context.Canceled }), c)
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, ownAttempt(t.Context(), store, statement("select 1"), unseen("other")...))
		}
		return query[int](t, pool, "select count(*) from pg_stat_statements")
	}
	calls()
	require.Equal(t, calls(), calls())
}

// Each other name would be an entry of its own in pg_stat_statements. One that ended with the savepoint around it
// reaches none that has its name meanwhile, and nothing commits.
func TestSavepoint_IsNamedByItsDepth(t *testing.T) {
	t.Parallel()
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		begin := func() (outer, inner pgx.Tx) {
			outer, err := tx.Begin(ctx)
			require.NoError(t, err)
			inner, err = tx.Begin(ctx)
			require.NoError(t, err)
			return outer, inner
		}
		outer, inner := begin()
		require.NoError(t, outer.Commit(ctx))
		again, now := begin()
		require.NoError(t, set("now", 1)(ctx, now))
		require.ErrorIs(t, inner.Rollback(ctx), pgx.ErrTxClosed)
		require.NoError(t, now.QueryRow(ctx, "select value from item where key = 'now'").Scan(new(int64)))
		require.NoError(t, statement("rollback to savepoint fencekit_2; release savepoint fencekit_2")(ctx, tx))
		require.ErrorIs(t, now.QueryRow(ctx, "select value from item where key = 'now'").Scan(new(int64)), pgx.ErrNoRows)
		return again.Rollback(ctx)
	})
	require.ErrorContains(t, err, "an outer savepoint has ended")
	holds(t, pool, "now", 0)
}

// pause blocks the first call that reaches it, until it is resumed.
type pause struct {
	reached, goOn chan struct{}
	come, resume  func()
}

func newPause() *pause {
	p := &pause{reached: make(chan struct{}), goOn: make(chan struct{})}
	p.come = sync.OnceFunc(func() {
		close(p.reached)
		<-p.goOn
	})
	p.resume = sync.OnceFunc(func() { close(p.goOn) })
	return p
}

type pausedConn struct {
	net.Conn
	pause *atomic.Pointer[pause]
}

func (c pausedConn) Write(b []byte) (int, error) {
	if p := c.pause.Swap(nil); p != nil {
		p.come()
	}
	return c.Conn.Write(b)
}

func pausing(pause *atomic.Pointer[pause]) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		wrapConn(cfg, func(conn net.Conn) net.Conn { return pausedConn{conn, pause} })
	}
}

// A goroutine that the operation left behind is blocked just before it sends. Its call has
// no effect, neither by itself nor in the next transaction of that connection, and the operation fails.
func TestRun_NoCallLeftBehindTakesEffect(t *testing.T) {
	t.Parallel()
	mine := errors.New("never mind")
	for name, send := range methods {
		t.Run(name, func(t *testing.T) {
			var next atomic.Pointer[pause]
			pool := openPool(t, migrated(t), pausing(&next))
			mustExec(t, pool, createRun)
			store := newStore(t, pool, nil)
			held := newPause()
			defer held.resume()
			c := claim(t, store, grant(5, "a"))
			late := make(chan struct{})
			_, err := attempt(t.Context(), store, do(func(_ context.Context, tx pgx.Tx) error {
				next.Store(held)
				go func() {
					defer close(late)
					send(context.Background(), tx, "insert into item values ('late', 1)")
				}()
				receive(t, held.reached)
				return mine
			}), c)
			require.ErrorIs(t, err, mine)
			require.ErrorContains(t, err, "wait for goroutines")
			write(t, store, claim(t, store, grant(6, "b")), do(func(context.Context, pgx.Tx) error {
				held.resume()
				receive(t, late)
				return nil
			}))
			holds(t, pool, "late", 0)
		})
	}
}

// What is left behind may have sent a COMMIT: an operation that ran again would take effect twice.
func TestRun_WhatIsLeftBehindMayHaveCommitted(t *testing.T) {
	t.Parallel()
	const sql = "insert into item values ('x', 1); commit"
	for name, leave := range map[string]func(pgx.Tx){
		"goroutine": func(tx pgx.Tx) {
			go func() { _, _ = tx.Exec(context.Background(), sql+"; select pg_advisory_xact_lock(1)") }()
		},
		"result": func(tx pgx.Tx) { _, _ = tx.Query(context.Background(), sql, pgx.QueryExecModeSimpleProtocol) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			locked(t, pool, "select pg_advisory_xact_lock(1)")
			_, err := attempt(t.Context(), store, do(func(_ context.Context, tx pgx.Tx) error {
				leave(tx)
				eventually(t, pool, "select value = 1 from item where key = 'x'")
				return &postgres.TransientError{Err: errors.New("again")}
			}), claim(t, store, grant(5, "a")))
			require.ErrorContains(t, err, "again")
			require.ErrorContains(t, err, "wait for goroutines")
			require.ErrorIs(t, err, storage.ErrTxEnded)
			require.False(t, guard.SafeToRetry(err))
		})
	}
}

func TestTx_IsForOneGoroutineAtATime(t *testing.T) {
	t.Parallel()
	var next atomic.Pointer[pause]
	pool := openPool(t, migrated(t), pausing(&next))
	store := newStore(t, pool, nil)
	held := newPause()
	defer held.resume()
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		next.Store(held)
		other := make(chan error, 1)
		go func() { other <- set("x", 1)(ctx, tx) }()
		receive(t, held.reached)
		require.ErrorContains(t, set("y", 1)(ctx, tx), "wait for goroutines")
		held.resume()
		return receive(t, other)
	}))
	holds(t, pool, "x", 1)
	holds(t, pool, "y", 0)
}

func TestRun_UsersOwnErrorIsNoRejection(t *testing.T) {
	t.Parallel()
	_, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	for _, state := range []string{"ZF001", "ZF003"} {
		_, err := attempt(t.Context(), store, statement("do $$ begin raise exception 'mine' using errcode = '"+state+"'; end $$"), c)
		require.ErrorContains(t, err, "mine")
		require.NotErrorIs(t, err, storage.ErrStaleToken)
		require.NotErrorIs(t, err, storage.ErrTxEnded)
	}
	require.Empty(t, recorded(t, store))
}
