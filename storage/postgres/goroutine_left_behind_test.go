package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
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

// A goroutine that the operation left behind is blocked just before it sends. Its call has
// no effect, neither by itself nor in the next transaction of that connection, and the operation fails.
func TestRun_NoCallLeftBehindTakesEffect(t *testing.T) {
	t.Parallel()
	const insert = "insert into item values ('late', 1)"
	mine := errors.New("never mind")
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
			pool := openPool(t, migrated(t), single, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = pausing{} })
			store := newStore(t, pool, nil)
			held := newPause()
			defer held.resume()
			late := make(chan error, 1)
			_, err := attempt(t.Context(), store, do(func(_ context.Context, tx pgx.Tx) error {
				go func() { late <- call(context.WithValue(context.Background(), pauseKey{}, held), tx) }()
				select {
				case <-held.reached:
				case err := <-late:
					late <- err
				}
				return mine
			}), claim(t, store, grant(5, "a")))
			require.ErrorIs(t, err, mine)
			if name != "LargeObjects" { // which fails at once
				require.ErrorContains(t, err, "wait for goroutines")
			}
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

func TestTx_IsForOneGoroutineAtATime(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = pausing{} })
	store := newStore(t, pool, nil)
	held := newPause()
	defer held.resume()
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		other := make(chan error, 1)
		go func() { other <- set("x", 1)(context.WithValue(ctx, pauseKey{}, held), tx) }()
		receive(t, held.reached)
		require.ErrorContains(t, set("y", 1)(ctx, tx), "wait for goroutines")
		held.resume()
		return receive(t, other)
	}))
	holds(t, pool, "x", 1)
	holds(t, pool, "y", 0)
}

// An error of the operation's own that looks like one of ours is not taken for it.
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

// If the rejection is why the context ended, its error doesn't mention the context.
func TestRun_RejectionIsNotTiedToTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := attempt(ctx, store, do(func(ctx context.Context, tx pgx.Tx) error {
		claimOnly(t, pool, grant(6, "b"))
		cancel()
		return set("x", 1)(ctx, tx)
	}), claim(t, store, grant(5, "a")))
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.ErrorIs(t, err, context.Canceled)
	require.Regexp(t, `token 5 was superseded by 6 \(b, claimed .* s ago\)$`, err.Error())
}
