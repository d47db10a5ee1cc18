package guardsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guardsql"
)

const take = "update stock set qty = qty - 1 where sku = '42'"

var errOwn = errors.New("the function's own")

func TestWith_WritesInTheTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.do(func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, take); err != nil {
			return err
		}
		if err := with(ctx, tx, func(db *sql.DB) error {
			result, err := db.ExecContext(ctx, take)
			require.NoError(t, err)
			affected, err := result.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, affected)
			_, err = result.LastInsertId()
			require.Error(t, err)
			require.NoError(t, db.PingContext(ctx))
			w.requireQty(10) // the pool doesn't see it yet
			return nil
		}); err != nil {
			return err
		}
		return with(ctx, tx, func(db *sql.DB) error {
			var qty int
			require.NoError(t, db.QueryRow("select qty from stock").Scan(&qty))
			require.Equal(t, 8, qty)
			return nil
		})
	}))
	w.requireQty(8)
	require.ErrorIs(t, w.with(func(db *sql.DB) error {
		_, err := db.Exec(take)
		return errors.Join(err, errOwn)
	}), errOwn)
	w.requireQty(8)
}

func TestWith_ReleasesThePanicOfItsFunction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var kept *sql.DB
	require.PanicsWithValue(t, "own", func() {
		_ = w.do(func(ctx context.Context, tx pgx.Tx) error {
			return with(ctx, tx, func(db *sql.DB) error { kept = db; panic("own") })
		})
	})
	require.Error(t, kept.Ping())
}

// pgx converts the arguments: database/sql would refuse most of these.
func TestWith_PassesArgumentsToPgx(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type named string
	noon := time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC)
	require.NoError(t, w.with(func(db *sql.DB) error {
		for _, c := range []struct {
			sql  string
			args []any
		}{
			{"select $1::int[] = '{1,2}'", []any{[]int{1, 2}}},
			{"select $1::text[] = '{a}'", []any{[]named{"a"}}},
			{"select $1::bytea = '\\x00ff'", []any{[]byte{0, 255}}},
			{"select $1::timestamptz = '2026-02-28 12:00Z'", []any{noon}},
			{"select $1::interval = '2 s'", []any{2 * time.Second}},
			{"select $1::uuid = '4b1d7f6e-6a10-4b53-9d11-1f6cbb1fa7c2'", []any{[16]byte{0x4b, 0x1d, 0x7f, 0x6e, 0x6a, 0x10, 0x4b, 0x53, 0x9d, 0x11, 0x1f, 0x6c, 0xbb, 0x1f, 0xa7, 0xc2}}},
			{"select $1::jsonb->>'a' = 'b'", []any{map[string]string{"a": "b"}}},
			{"select $1::text is null and $2::int is null and $3::text is null", []any{nil, (*int)(nil), sql.NullString{}}},
			{"select $1::text = 'v'", []any{valuer(func() (driver.Value, error) { return "v", nil })}},
			{"select $1::int = 7", []any{sql.Named("n", 7)}},
			{"select @n::int = 7", []any{pgx.NamedArgs{"n": 7}}},
			{"select $1::int = 7", []any{pgx.QueryExecModeSimpleProtocol, 7}},
		} {
			var same bool
			require.NoError(t, db.QueryRow(c.sql, c.args...).Scan(&same), c.sql)
			require.True(t, same, c.sql)
		}
		return nil
	}))
}

type valuer func() (driver.Value, error)

func (v valuer) Value() (driver.Value, error) { return v() }

func TestWith_BeginsSavepoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.with(func(db *sql.DB) error {
		committed, err := db.Begin()
		require.NoError(t, err)
		for _, sql := range []string{take, "savepoint a", take, "savepoint b", take, "rollback to savepoint a", "release savepoint a"} {
			_, err = committed.Exec(sql)
			require.NoError(t, err, sql)
		}
		require.NoError(t, committed.Commit())
		require.ErrorIs(t, committed.Rollback(), sql.ErrTxDone)

		undone, err := db.Begin()
		require.NoError(t, err)
		_, err = undone.Exec(take)
		require.NoError(t, err)
		_, err = undone.Exec("update stock set qty = -1")
		require.Equal(t, "23514", code(err))
		_, err = undone.Exec(take)
		require.Equal(t, "25P02", code(err))
		require.NoError(t, undone.Rollback())

		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{})
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), take) // of the same connection
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		return nil
	}))
	w.requireQty(8)
}

func code(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}

// What a failed statement undid is not committed with the rest.
func TestWith_CommitOfAFailedSavepointFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.with(func(db *sql.DB) error {
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("update stock set qty = -1")
		require.Error(t, err)
		require.ErrorIs(t, tx.Commit(), pgx.ErrTxCommitRollback)
		_, err = db.Exec(take)
		return err
	}))
	w.requireQty(9)
}

func TestWith_RefusesOptionsOfTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.with(func(db *sql.DB) error {
		for _, options := range []sql.TxOptions{{ReadOnly: true}, {Isolation: sql.LevelReadCommitted}, {Isolation: sql.LevelSerializable}} {
			_, err := db.BeginTx(t.Context(), &options)
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorContains(t, err, "begin it without options")
		}
		_, err := db.Exec(take)
		return err
	}))
	w.requireQty(9)
}

func TestWith_OneUseAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.with(func(db *sql.DB) error {
		prepared, err := db.Prepare(take)
		require.NoError(t, err)
		other, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer other.Close()
		refused := func(says string) {
			t.Helper()
			_, execErr := db.Exec(take)
			_, queryErr := db.Query("select 1")
			_, beginErr := db.Begin()
			_, otherErr := other.ExecContext(t.Context(), take)
			_, preparedErr := prepared.Exec()
			for i, err := range []error{execErr, queryErr, db.QueryRow("select 1").Scan(new(int)), beginErr, otherErr, preparedErr, db.Ping()} {
				require.ErrorIs(t, err, guardsql.ErrInUse, i)
				require.ErrorContains(t, err, says, i)
			}
		}

		own, err := db.Conn(t.Context())
		require.NoError(t, err)
		tx, err := own.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		refused("a *sql.Tx is open")
		_, err = own.BeginTx(t.Context(), nil)
		require.ErrorIs(t, err, guardsql.ErrInUse, "of the same connection")
		_, err = tx.Stmt(prepared).Exec()
		require.NoError(t, err)

		rows, err := tx.Query("select generate_series(1, 3)")
		require.NoError(t, err)
		require.True(t, rows.Next())
		refused("Rows are open")
		_, err = tx.Exec(take)
		require.ErrorIs(t, err, guardsql.ErrInUse)
		var n int
		require.NoError(t, rows.Scan(&n))
		require.Equal(t, 1, n)
		require.NoError(t, rows.Close())
		require.NoError(t, rows.Close())
		require.NoError(t, tx.Commit())
		require.NoError(t, own.Close())

		_, err = db.Exec("select $1::text", valuer(func() (driver.Value, error) {
			refused("another call runs")
			return "v", nil
		}))
		require.NoError(t, err)

		_, err = prepared.Exec()
		return err
	}))
	w.requireQty(8)
}

func TestWith_ReportsWhatIsLeftOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for says, leave := range map[string]func(ctx context.Context, db *sql.DB){
		"a *sql.Tx": func(ctx context.Context, db *sql.DB) {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.Exec(take)
			require.NoError(t, err)
		},
		"Rows": func(ctx context.Context, db *sql.DB) {
			_, err := db.Query("update stock set qty = 5 returning qty")
			require.NoError(t, err)
		},
		"Rows: ": func(ctx context.Context, db *sql.DB) {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.Query("update stock set qty = 5 returning qty")
			require.NoError(t, err)
		},
	} {
		t.Run(says, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel() // ends database/sql's goroutines
			err := w.with(func(db *sql.DB) error { leave(ctx, db); return nil })
			require.ErrorIs(t, err, guardsql.ErrLeftOpen)
			require.ErrorContains(t, err, says)
			w.requireQty(10)

			require.ErrorIs(t, w.with(func(db *sql.DB) error { leave(ctx, db); return errOwn }), errOwn)
			w.requireQty(10)
		})
	}
}

// A function may take With's error for no reason to give up.
func TestWith_RollsBackWhatIsLeftOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, own := range []error{nil, errOwn} {
		require.NoError(t, w.do(func(fnCtx context.Context, tx pgx.Tx) error {
			require.Error(t, with(fnCtx, tx, func(db *sql.DB) error {
				left, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = left.Exec("update stock set qty = 0")
				require.NoError(t, err)
				return own
			}))
			_, err := tx.Exec(fnCtx, take)
			return err
		}))
	}
	w.requireQty(8)
}

// database/sql rolls back from a goroutine of its own when the context of a *sql.Tx ends: that is not left open,
// whether it has happened or not.
func TestWith_ASavepointWhoseContextEndedIsRolledBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 20 {
		require.NoError(t, w.with(func(db *sql.DB) error {
			ctx, cancel := context.WithCancel(t.Context())
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.Exec(take)
			require.NoError(t, err)
			cancel()
			return nil
		}))
	}
	w.requireQty(10)
}

// waiting starts a statement that waits for a lock which the test holds, and returns when it waits.
func (w *world) waiting(run func(sql string) error) (result <-chan error) {
	w.t.Helper()
	holder, err := w.pool.Begin(w.t.Context())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = holder.Rollback(context.Background()) })
	_, err = holder.Exec(w.t.Context(), "select pg_advisory_xact_lock(1)")
	require.NoError(w.t, err)
	done := make(chan error, 1)
	go func() { done <- run("select pg_advisory_xact_lock(1)") }()
	require.Eventually(w.t, func() (waits bool) {
		err := holder.QueryRow(w.t.Context(), "select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))").Scan(&waits)
		return err == nil && waits
	}, time.Minute, time.Millisecond)
	return done
}

func TestWith_EndsACallThatRunsOn(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(db *sql.DB, waits string) error{
		"exec": func(db *sql.DB, waits string) error {
			_, err := db.Exec(waits)
			return err
		},
		"rows": func(db *sql.DB, waits string) error { // the server sends the first row because it is long
			rows, err := db.Query("select repeat('x', 100000), case when n = 2 then (" + waits + ")::text end from generate_series(1, 3) n")
			if err != nil || !rows.Next() {
				return fmt.Errorf("the first row: %w", err)
			}
			for rows.Next() {
			}
			return rows.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var call <-chan error
			err := w.with(func(db *sql.DB) error {
				require.NoError(t, db.Ping()) // begins the transaction
				call = w.waiting(func(waits string) error { return run(db, waits) })
				_, err := db.Exec(take)
				require.ErrorIs(t, err, guardsql.ErrInUse)
				return nil
			})
			require.ErrorIs(t, err, guardsql.ErrLeftOpen)
			require.ErrorContains(t, err, "wait for goroutines")
			require.ErrorIs(t, <-call, context.Canceled)
			w.requireQty(10)
		})
	}
}

func TestWith_EndsAStatementWithEitherContext(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]func(of, own context.CancelFunc){
		"With's":          func(of, _ context.CancelFunc) { of() },
		"the statement's": func(_, own context.CancelFunc) { own() },
	} {
		for kind, run := range map[string]func(ctx context.Context, db *sql.DB, query string) error{
			"exec": func(ctx context.Context, db *sql.DB, query string) error {
				_, err := db.ExecContext(ctx, query)
				return err
			},
			"query": func(ctx context.Context, db *sql.DB, query string) error {
				_, err := db.QueryContext(ctx, query)
				return err
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				require.ErrorIs(t, w.do(func(ctx context.Context, tx pgx.Tx) error {
					of, cancelOf := context.WithCancel(ctx)
					own, cancelOwn := context.WithCancel(t.Context())
					defer cancelOwn()
					defer cancelOf()
					return with(of, tx, func(db *sql.DB) error {
						call := w.waiting(func(sql string) error { return run(own, db, sql) })
						which(cancelOf, cancelOwn)
						return <-call
					})
				}), context.Canceled)
			})
		}
	}
}

func TestWith_NothingWorksAfterItsReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		db   *sql.DB
		conn *sql.Conn
		tx   *sql.Tx
		rows *sql.Rows
		stmt *sql.Stmt
	)
	require.ErrorIs(t, w.with(func(d *sql.DB) (err error) {
		db = d
		stmt, err = db.Prepare(take)
		require.NoError(t, err)
		conn, err = db.Conn(ctx)
		require.NoError(t, err)
		tx, err = conn.BeginTx(ctx, nil)
		require.NoError(t, err)
		rows, err = tx.Query("select generate_series(1, 3)")
		require.NoError(t, err)
		return nil
	}), guardsql.ErrLeftOpen)
	require.False(t, rows.Next())
	require.ErrorIs(t, rows.Err(), sql.ErrConnDone)
	_, err := tx.Exec(take)
	require.ErrorIs(t, err, sql.ErrConnDone)
	_, err = conn.ExecContext(ctx, take)
	require.ErrorContains(t, err, "With has returned")
	require.ErrorIs(t, tx.Commit(), sql.ErrConnDone)
	_, err = stmt.Exec()
	require.ErrorContains(t, err, "closed")
	_, err = db.Exec(take)
	require.ErrorContains(t, err, "closed")
	_, err = db.Driver().Open("")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	w.requireQty(10)
}

// badTx is a transaction whose calls fail with what would make database/sql try again.
type badTx struct {
	pgx.Tx
	calls *int
}

var errBad = fmt.Errorf("%w from below", driver.ErrBadConn)

func (b badTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	*b.calls++
	return pgconn.CommandTag{}, errBad
}

func (b badTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if *b.calls++; len(args) == 1 {
		return nil, errBad
	}
	rows, err := b.Tx.Query(ctx, sql, args...)
	return badRows{rows}, err
}

func (b badTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if *b.calls++; *b.calls == 1 {
		return b, nil
	}
	return nil, errBad
}

func (b badTx) Commit(context.Context) error { *b.calls++; return errBad }

type badRows struct{ pgx.Rows }

func (badRows) Err() error { return errBad }

func TestWith_NothingIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		calls int
		run   func(db *sql.DB) error
	}{
		"exec":    {1, func(db *sql.DB) error { _, err := db.Exec(take); return err }},
		"query":   {1, func(db *sql.DB) error { _, err := db.Query("select 1"); return err }},
		"row":     {1, func(db *sql.DB) error { return db.QueryRow("select 1").Scan(new(int)) }},
		"no rows": {1, func(db *sql.DB) error { _, err := db.Query("select where $1", false); return err }},
		"rows": {1, func(db *sql.DB) error {
			rows, err := db.Query("select 1 where $1", true)
			require.NoError(t, err)
			require.True(t, rows.Next())
			require.False(t, rows.Next())
			return rows.Err()
		}},
		"ping": {1, func(db *sql.DB) error { return db.Ping() }},
		"stmt": {1, func(db *sql.DB) error {
			stmt, err := db.Prepare(take)
			require.NoError(t, err)
			_, err = stmt.Exec()
			return err
		}},
		"commit": {2, func(db *sql.DB) error {
			tx, err := db.Begin()
			require.NoError(t, err)
			return tx.Commit()
		}},
		"begin": {3, func(db *sql.DB) error {
			tx, err := db.Begin()
			require.NoError(t, err)
			require.Error(t, tx.Commit())
			_, err = db.Begin()
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			require.NoError(t, w.do(func(ctx context.Context, tx pgx.Tx) error {
				err := with(ctx, badTx{tx, &calls}, c.run)
				require.ErrorContains(t, err, errBad.Error())
				require.NotErrorIs(t, err, driver.ErrBadConn)
				return nil
			}))
			require.Equal(t, c.calls, calls)
		})
	}
	tried := map[error]int{}
	for _, own := range []error{errOwn, errBad} {
		require.NoError(t, w.with(func(db *sql.DB) error {
			_, err := db.Exec("select $1::text", valuer(func() (driver.Value, error) { tried[own]++; return nil, own }))
			require.ErrorContains(t, err, own.Error())
			return nil
		}))
	}
	require.Equal(t, tried[errOwn], tried[errBad])
}

func TestWith_ReadsAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.with(func(db *sql.DB) error {
		rows, err := db.Query("select n, n::text::bytea from generate_series(1, 1000) n")
		require.NoError(t, err)
		names, err := rows.Columns()
		require.NoError(t, err)
		require.Equal(t, []string{"n", "n"}, names)
		var kept [][]byte
		sum := 0
		for rows.Next() {
			var n int
			var text []byte
			require.NoError(t, rows.Scan(&n, &text))
			sum += n
			kept = append(kept, text)
		}
		require.NoError(t, rows.Err())
		require.False(t, rows.NextResultSet())
		require.Equal(t, 500500, sum)
		require.Equal(t, "1", string(kept[0]))
		require.Equal(t, "1000", string(kept[999]))
		require.ErrorIs(t, db.QueryRow("select 1 where false").Scan(new(int)), sql.ErrNoRows)
		_, err = db.Query("update stock set qty = 7") // has no rows, and so none that stay open
		require.NoError(t, err)
		require.NotErrorIs(t, err, io.EOF)
		return nil
	}))
	w.requireQty(7)
}
