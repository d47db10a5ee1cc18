package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// The lock service was restored, and issues lower tokens than it did. A grant that
// is rejected for one that was known when this one was asked for says so.
func TestClaim_ReportsALockServiceThatWentBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		w.locks.SetToken(100)
		require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
		require.NoError(t, g.Close(t.Context()))
		time.Sleep(time.Second)

		w.locks.SetToken(50)
		fresh := w.process("b", nil)
		err := guard.Do(t.Context(), fresh, sku, increment("n"))
		require.ErrorIs(t, err, guard.ErrStaleToken)
		require.NotErrorIs(t, err, guard.ErrWrongLockService, "it may just have come late")
		runs := w.locks.Grants()
		err = guard.Do(t.Context(), fresh, sku, increment("n"), guard.Retryable())
		require.ErrorIs(t, err, guard.ErrWrongLockService)
		requireRejected(t, err, storage.ReasonTokensWentBack)
		require.ErrorContains(t, err, "before token 51 was asked for")
		require.ErrorContains(t, err, "raise the epoch: fencectl epoch bump --reason TEXT")
		require.Equal(t, runs+1, w.locks.Grants(), "trying again is of no use")
		requireRejected(t, guard.Do(t.Context(), fresh, sku, increment("n")), storage.ReasonTokensWentBack)
		w.locks.SetEpoch(2)
		require.NoError(t, guard.Do(t.Context(), fresh, sku, increment("n")))
	})
}

// sleepy is a store whose client's machine slept while it asked, with its clock: it
// finds that more time has passed for the database than for itself.
type sleepy struct{ *memory.Store }

func (s sleepy) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	c, err := s.Store.Claim(ctx, seen...)
	if stale := new(guard.RejectedError); errors.As(err, &stale) {
		stale.Age += time.Hour
	}
	return c, err
}

// A machine that stood still between asking and claiming is late, and no more than
// that: trying again helps.
func TestClaim_AfterAFrozenClockIsJustStale(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.process("b", nil)
		a, err := guard.New(w.locks.NewLocker("a"), sleepy{w.store}, nil)
		require.NoError(t, err)
		w.store.SetFaults(memory.Faults{Claim: func(g fence.Grant) error {
			w.store.SetFaults(memory.Faults{})
			w.locks.Lose(sku)
			return guard.Do(t.Context(), b, sku, increment("n"))
		}})
		require.NoError(t, guard.Do(t.Context(), a, sku, increment("n"), guard.Retryable()))
		require.Equal(t, "2", w.store.Read("n"))
		require.NoError(t, a.Close(t.Context()))
	})
}

// A grant that waited and came too late says nothing about the lock service.
func TestClaim_SupersededWhileItWaitedIsJustStale(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process("a", nil), w.process("b", nil)
		w.store.SetFaults(memory.Faults{Claim: func(g fence.Grant) error {
			if g.Holder[0] == 'a' {
				time.Sleep(time.Second)
				w.locks.Lose(sku)
				require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
				time.Sleep(time.Second)
			}
			return nil
		}})
		err := guard.Do(t.Context(), a, sku, increment("n"))
		require.ErrorIs(t, err, guard.ErrStaleToken)
		require.NotErrorIs(t, err, guard.ErrWrongLockService)
	})
}
