package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// A lease that was lost while the transaction began ends the function's context as well.
func TestContext_EndsWithALeaseThatWasLostBeforeTheFunction(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		var lose atomic.Bool
		w.store.SetFaults(memory.Faults{Begin: func([]storage.Claim) error {
			if lose.CompareAndSwap(true, false) {
				w.locks.Lose(sku)
				synctest.Wait() // whatever hears of the loss has heard of it
			}
			return nil
		}})
		require.NoError(t, guard.Do(t.Context(), g, sku, set("k", "v")))
		lose.Store(true)
		err := guard.Do(t.Context(), g, sku, func(ctx context.Context, _ *memory.Tx) error { return ctx.Err() })
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, fence.ErrLeaseLost)
	})
}

// Under a lease of the caller's, and in a Hold, the same lease ends the context.
func TestContext_EndsWithTheLease(t *testing.T) {
	loses := func(w *world) func(context.Context, *memory.Tx) error {
		return func(ctx context.Context, _ *memory.Tx) error {
			w.locks.Lose(sku)
			<-ctx.Done()
			return context.Cause(ctx)
		}
	}
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, loses(w)), fence.ErrLeaseLost)
		require.ErrorIs(t, guard.Do(t.Context(), g, []string{"a", sku}, loses(w)), fence.ErrLeaseLost)
		require.ErrorIs(t, guard.Hold(t.Context(), g, sku, func(_ context.Context, h held) error {
			return guard.Do(context.Background(), h, sku, loses(w))
		}), fence.ErrLeaseLost)
		lease, err := w.locks.NewLocker("b").Acquire(t.Context(), sku)
		require.NoError(t, err)
		require.ErrorIs(t, guard.Do(t.Context(), g.UnderLease(lease), sku, loses(w)), fence.ErrLeaseLost)
	})
}

// A retained context of a call that has ended says so, and hears nothing of later calls.
func TestContext_EndsWhenTheFunctionHasReturned(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		var kept context.Context
		require.NoError(t, guard.Do(t.Context(), g, sku, func(ctx context.Context, _ *memory.Tx) error {
			kept = ctx
			return ctx.Err()
		}))
		require.ErrorIs(t, kept.Err(), context.Canceled)
		w.locks.Lose(sku)
		synctest.Wait()
		require.NotErrorIs(t, context.Cause(kept), fence.ErrLeaseLost)
		require.Len(t, guard.Grants(kept), 1)
	})
}

// When Close has given up waiting, what begins to wait for the database ends at once.
func TestContext_OfAStepThatBeginsAfterCloseHasGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		step := make(chan error, 1)
		w.store.SetFaults(memory.Faults{Claim: func(fence.Grant) error { time.Sleep(time.Hour); return nil }})
		store := beginSees{w.store, step}
		g, err := guard.New(w.locks.NewLocker("a"), store, &guard.Config{StoreTimeout: 2 * time.Hour})
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() { failed <- guard.Do(t.Context(), g, sku, set("k", "v")) }()
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, g.Close(ended), "the claim is deaf")
		require.ErrorIs(t, <-step, guard.ErrClosed)
		require.NoError(t, <-failed)
		require.NoError(t, g.Close(t.Context()))
	})
}

// beginSees tells with what cause the context of Begin has ended.
type beginSees struct {
	*memory.Store
	cause chan<- error
}

func (s beginSees) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*memory.Tx], error) {
	s.cause <- context.Cause(ctx)
	return s.Store.Begin(context.WithoutCancel(ctx), claims...)
}
