package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

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

type pauseKey struct{}

// pausing is a tracer that blocks calls on a connection, after all checks, at the pause in
// their context.
type pausing struct{}

func (pausing) start(ctx context.Context) context.Context {
	if p, ok := ctx.Value(pauseKey{}).(*pause); ok {
		p.come()
	}
	return ctx
}

func (p pausing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return p.start(ctx)
}
func (pausing) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (p pausing) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return p.start(ctx)
}
func (pausing) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (pausing) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (p pausing) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return p.start(ctx)
}
func (pausing) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}
func (p pausing) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return p.start(ctx)
}
func (pausing) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// one limits a pool to one connection: calls that an operation left behind meet the next
// operation's.
func one(cfg *pgxpool.Config) { cfg.MaxConns = 1 }

// A goroutine that the operation left behind is blocked just before it sends. Its call has
// no effect in the next transaction of that connection.
func TestRun_NoCallLeftBehindTakesEffect(t *testing.T) {
	t.Parallel()
	const insert = "insert into item values ('late', 1)"
	for name, call := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Exec": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, insert); return err },
		"Query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, insert)
			rows.Close()
			return errors.Join(err, rows.Err())
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, insert+" returning value").Scan(new(int))
		},
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"key", "value"}, pgx.CopyFromRows([][]any{{"late", int64(1)}}))
			return err
		},
		"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue(insert)
			return tx.SendBatch(ctx, batch).Close()
		},
		"Prepare": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Prepare(ctx, "late", insert); return err },
		"Begin":   func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
		"LargeObjects": func(ctx context.Context, tx pgx.Tx) error {
			large := tx.LargeObjects()
			_, err := large.Create(ctx, 4711)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, migrated(t), one, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = pausing{} })
			store := newStore(t, pool, nil)
			held := newPause()
			defer held.resume()
			late := make(chan error, 1)
			_, _ = attempt(t.Context(), store, do(func(_ context.Context, tx pgx.Tx) error {
				go func() { late <- call(context.WithValue(context.Background(), pauseKey{}, held), tx) }()
				select {
				case <-held.reached:
				case err := <-late:
					late <- err
				}
				return nil
			}), claim(t, store, grant(5, "a")))
			write(t, store, claim(t, store, grant(6, "b")), do(func(context.Context, pgx.Tx) error {
				held.resume()
				require.Error(t, receive(t, late))
				return nil
			}))
			holds(t, pool, "late", 0)
			require.Zero(t, query[int](t, pool, "select count(*) from pg_largeobject_metadata"))
		})
	}
}

// rewriter records which connection it is given.
type rewriter struct{ conn *pgx.Conn }

func (r *rewriter) RewriteQuery(_ context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	r.conn = conn
	return "select $1::int", []any{1}, nil
}

// rowScanner does something with the row that it is scanned into.
type rowScanner func(pgx.Rows) error

func (f rowScanner) ScanRow(rows pgx.Rows) error { return f(rows) }

// Callbacks that pgx makes during a call don't get the connection either.
func TestTx_HidesItsConnectionFromCallbacks(t *testing.T) {
	t.Parallel()
	_, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		nested, err := tx.Begin(ctx)
		require.NoError(t, err)
		r := &rewriter{}
		for _, tx := range []pgx.Tx{tx, nested} {
			_, err := tx.Exec(ctx, "", r)
			require.NoError(t, err)
			require.Nil(t, r.conn, "Exec")
			rows, err := tx.Query(ctx, "", pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats{1}, pgx.QueryResultFormatsByOID{}, pgx.NamedArgs{}, r)
			require.NoError(t, err)
			rows.Close()
			require.Nil(t, r.conn, "Query")
			require.NoError(t, tx.QueryRow(ctx, "", r).Scan(new(int)))
			require.Nil(t, r.conn, "QueryRow")
			batch := &pgx.Batch{}
			batch.Queue("", r)
			require.NoError(t, tx.SendBatch(ctx, batch).Close())
			require.Nil(t, r.conn, "SendBatch")
			require.Equal(t, []any{r}, batch.QueuedQueries[0].Arguments, "the batch is the operation's own")
		}

		called := 0
		scanner := rowScanner(func(rows pgx.Rows) error {
			called++
			require.Nil(t, rows.Conn())
			return rows.Scan(new(int))
		})
		require.NoError(t, tx.QueryRow(ctx, "select 1").Scan(scanner))
		rows, err := tx.Query(ctx, "select 1")
		require.NoError(t, err)
		_, err = pgx.ForEachRow(rows, []any{scanner}, func() error { return nil })
		require.NoError(t, err)
		batch := &pgx.Batch{}
		batch.Queue("select 1").QueryRow(func(row pgx.Row) error { return row.Scan(scanner) })
		require.NoError(t, tx.SendBatch(ctx, batch).Close())
		require.Equal(t, 3, called)
		return nil
	})
	require.NoError(t, err)
}

// scanner is a sql.Scanner.
type scanner func(src any) error

func (f scanner) Scan(src any) error { return f(src) }

var _ sql.Scanner = scanner(nil)

// A result is for one goroutine at a time: closing it doesn't free the connection
// while another one reads it.
func TestTx_ResultIsForOneGoroutineAtATime(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]func(ctx context.Context, tx pgx.Tx, held *pause){
		"Rows": func(ctx context.Context, tx pgx.Tx, held *pause) {
			rows, err := tx.Query(ctx, "select generate_series(1, 3)")
			require.NoError(t, err)
			require.True(t, rows.Next())
			scanned := make(chan error)
			go func() { scanned <- rows.Scan(scanner(func(any) error { held.come(); return nil })) }()
			receive(t, held.reached)
			require.False(t, rows.Next())
			require.ErrorContains(t, rows.Err(), "in use")
			held.resume()
			require.NoError(t, receive(t, scanned))
			require.ErrorContains(t, rows.Err(), "in use", "no end of the rows was reached")
			rows.Close()
		},
		"BatchResults of a callback": func(ctx context.Context, tx pgx.Tx, held *pause) {
			batch := &pgx.Batch{}
			batch.Queue("select 1").Fn = func(results pgx.BatchResults) error {
				go func() {
					_ = results.QueryRow().Scan(scanner(func(any) error { held.come(); return nil }))
				}()
				receive(t, held.reached)
				return nil
			}
			require.ErrorContains(t, tx.SendBatch(ctx, batch).Close(), "in use")
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, migrated(t), one)
			store := newStore(t, pool, nil)
			held := newPause()
			defer held.resume()
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				require.NoError(t, set("x", 1)(ctx, tx))
				op(ctx, tx, held)
				return nil
			}), claim(t, store, grant(5, "a")))
			require.ErrorContains(t, err, "wait for goroutines")
			holds(t, pool, "x", 0)
		})
	}
}
