package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// slow blocks a statement between the check of the transaction and the sending.
type slow struct{ reached, goOn chan struct{} }

func (s slow) RewriteQuery(_ context.Context, _ *pgx.Conn, sql string, _ []any) (string, []any, error) {
	close(s.reached)
	<-s.goOn
	return sql, nil, nil
}

// A statement that a goroutine of the operation's has begun and not sent yet when
// the operation returns never takes effect: neither by itself nor in the
// transaction that the connection would run next.
func TestRun_StatementLeftBehindTakesNoEffect(t *testing.T) {
	t.Parallel()
	for name, returned := range map[string]error{"nil": nil, "an error": errors.New("never mind")} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, migrated(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
			store := newStore(t, pool, nil)
			c := claim(t, store, grant(5, "a"))
			held := slow{make(chan struct{}), make(chan struct{})}
			late := make(chan error, 1)
			_, err := attempt(t.Context(), store, do(func(_ context.Context, tx pgx.Tx) error {
				go func() {
					_, err := tx.Exec(context.Background(), "insert into item values ('late', 1)", held)
					late <- err
				}()
				receive(t, held.reached)
				return returned
			}), c)
			require.ErrorContains(t, err, "wait for goroutines")
			if returned != nil {
				require.ErrorIs(t, err, returned)
			}
			write(t, store, claim(t, store, grant(6, "b")), do(func(context.Context, pgx.Tx) error {
				close(held.goOn)
				require.Error(t, receive(t, late))
				return nil
			}))
			holds(t, pool, "late", 0)
		})
	}
}

func TestTx_IsForOneGoroutineAtATime(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	held := slow{make(chan struct{}), make(chan struct{})}
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		other := make(chan error, 1)
		go func() {
			_, err := tx.Exec(ctx, "insert into item values ('x', 1)", held)
			other <- err
		}()
		receive(t, held.reached)
		_, err := tx.Exec(ctx, "insert into item values ('y', 1)")
		require.ErrorContains(t, err, "wait for goroutines")
		close(held.goOn)
		return receive(t, other)
	}))
	holds(t, pool, "x", 1)
	holds(t, pool, "y", 0)
}

// An error of the operation's own that looks like one of ours is not taken for it.
func TestRun_UsersOwnErrorIsNoRejection(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	for _, state := range []string{"ZF001", "ZF003"} {
		_, err := attempt(t.Context(), store, statement("do $$ begin raise exception 'mine' using errcode = '"+state+"'; end $$"), c)
		require.ErrorContains(t, err, "mine")
		require.NotErrorIs(t, err, storage.ErrStaleToken)
		require.NotErrorIs(t, err, storage.ErrTxEnded)
	}
	rejections, err := store.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
	require.Empty(t, rejections)
}

// If the rejection is why the context ended, its error doesn't mention the context.
func TestRun_RejectionIsNotTiedToTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
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
