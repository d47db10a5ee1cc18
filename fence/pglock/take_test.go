package pglock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

// takes takes names in a transaction of its own, which before may break.
func takes(t *testing.T, l *Locker, done []fence.Lease, want int, before func(tx pgx.Tx) error, names ...string) (took []Taken, err error) {
	t.Helper()
	err = l.Take(patient(t), done, func(ctx context.Context, taking *Taking) error {
		return pgx.BeginTxFunc(ctx, l.database.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			var err error
			if took, err = taking.Try(ctx, tx, want, "", names...); err == nil && before != nil {
				err = before(tx)
			}
			return err
		})
	})
	return took, err
}

func places(took []Taken) (places []int) {
	for _, one := range took {
		places = append(places, one.Place)
	}
	return places
}

// Take waits for nobody: it passes over what is owned, awaited, or moved just now, also of its own process, and takes up
// to as many as wanted of the rest.
func TestTake_PassesOverWhatOthersHave(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l, other := newLocker(t, pool, nil), newLocker(t, pool, nil)
	acquire(t, other, "a")
	acquire(t, l, "b")
	mustExec(t, pool, "insert into fence.lock_waiter (resource, session, holder) values ('c', 1, 'w/1')")
	moving := begin(t, pool)
	_, err := moving.Exec(t.Context(), "select fence.claim_here('{64}', '{612f31}', '', '{0}', '{0}', '{1}', '{1}')")
	require.Error(t, err, "it raises the mark")
	require.NoError(t, moving.Rollback(t.Context()))
	mustExec(t, pool, "select fence.create_here('{64}', '')")
	moving = begin(t, pool)
	_, err = moving.Exec(t.Context(), "select fence.claim_here('{64}', '{612f31}', '', '{0}', '{0}')")
	require.NoError(t, err)

	took, err := takes(t, l, nil, 2, nil, "a", "b", "c", "d", "e", "f", "g")
	require.NoError(t, err)
	require.Equal(t, []int{4, 5}, places(took))
	for _, one := range took {
		require.NoError(t, one.Err())
		require.Equal(t, int64(1), one.Seq)
	}
	took, err = takes(t, other, nil, 2, nil, "e", "f", "g", "g")
	require.NoError(t, err)
	require.Equal(t, []int{2}, places(took))
}

// A transaction that is rolled back takes nothing. One whose COMMIT may have arrived, or yet arrives, has what it took
// given back.
func TestTake_KeepsNothingOfAFailure(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l, other := newLocker(t, pool, nil), newLocker(t, pool, nil)
	broken := errors.New("broken")
	_, err := takes(t, l, nil, 1, func(pgx.Tx) error { return broken }, "a")
	require.ErrorIs(t, err, broken)

	var late pgx.Tx
	err = l.Take(patient(t), nil, func(ctx context.Context, taking *Taking) (err error) {
		if late, err = pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}); err != nil {
			return err
		}
		if _, err = taking.Try(ctx, late, 1, "", "b"); err != nil {
			return err
		}
		return broken
	})
	require.ErrorIs(t, err, broken)
	require.NoError(t, late.Commit(t.Context()))
	for _, name := range []string{"a", "b"} {
		acquire(t, other, name)
	}
}

// What is done is given back in the transaction that takes, or behind it if that fails.
func TestTake_GivesBackWhatIsDone(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l, other := newLocker(t, pool, nil), newLocker(t, pool, nil)
	took, err := takes(t, l, nil, 3, nil, "a", "b", "c")
	require.NoError(t, err)
	require.Len(t, took, 3)
	again, err := takes(t, l, []fence.Lease{took[0].Lease}, 1, nil, "a")
	require.NoError(t, err)
	require.Greater(t, again[0].Grant().Token, took[2].Grant().Token)
	release(t, took[0])
	_, err = takes(t, l, []fence.Lease{took[1].Lease}, 1, func(pgx.Tx) error { return errors.New("broken") }, "d")
	require.Error(t, err)
	release(t, took[1])
	acquire(t, other, "b")
	_, err = other.TryAcquire(patient(t), "c")
	require.ErrorIs(t, err, fence.ErrLocked)
}

// A process whose session is over takes nothing under it, and begins another one.
func TestTake_EndsWithItsSession(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, &Config{TTL: 5 * time.Minute})
	took, err := takes(t, l, nil, 1, nil, "a")
	require.NoError(t, err)
	mustExec(t, pool, "update fence.lock_session set expires_at = clock_timestamp()")
	_, err = takes(t, l, nil, 1, nil, "b")
	require.ErrorIs(t, err, ErrSessionOver)
	require.Equal(t, fence.LossExpired, lossOf(t, took[0]))
	require.NoError(t, l.EndExpired(patient(t)))
	took, err = takes(t, l, nil, 2, nil, "a", "b")
	require.NoError(t, err)
	require.Len(t, took, 2)
}
