package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

type held = guard.Runner[*memory.Tx]

func TestHold_ClaimsOnEntryAndKeepsOneGrant(t *testing.T) {
	w, g := newProcess(t)
	var kept held
	require.Same(t, errShop, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
		kept = h
		require.Equal(t, []storage.EntryKind{"claim"}, w.kinds())
		require.Equal(t, w.locks.Holder(sku), guard.Grants(ctx)[0])
		for range 3 {
			require.NoError(t, guard.Do(ctx, h, sku, increment("n"), guard.OpID("1")))
		}
		return errShop
	}))
	require.ErrorIs(t, guard.Do(t.Context(), kept, sku, increment("n")), fence.ErrReleased)
	require.Equal(t, "3", w.store.Read("n"), "the error has undone nothing")
	require.Equal(t, []storage.EntryKind{"claim", "write", "write", "write"}, w.kinds())
}

func TestHold_ReadsOfEarlierTransactionsHoldInLaterOnes(t *testing.T) {
	w, g := newProcess(t)
	require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
		var n string
		require.NoError(t, guard.Do(ctx, h, sku, func(_ context.Context, tx *memory.Tx) (err error) {
			n, err = tx.Get("n")
			return err
		}))
		require.NoError(t, doUnderGrant(ctx, w.store, guard.Grants(ctx)[0], increment("n")))
		for range 2 { // what was read is out of date for good
			err := guard.Do(ctx, h, sku, set("n", n+"5"), guard.Retryable())
			require.ErrorIs(t, err, guard.ErrOvertaken)
			require.Equal(t, 1, strings.Count(err.Error(), "this Hold is over, begin it again"), err)
		}
		return nil
	}))
	require.Equal(t, "1", w.store.Read("n"))
	require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")), "the next call claims anew")
	require.Equal(t, "2", w.store.Read("n"))
}

// A COMMIT that was lost may have lost its position to another transaction of
// the grant: then, too, what was read is out of date. One that was applied ends nothing.
func TestHold_EndsWithACommitThatWasNotApplied(t *testing.T) {
	w, g := newProcess(t)
	require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
		w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost, memory.Normal, memory.RequestLost)})
		require.NoError(t, guard.Do(ctx, h, sku, increment("n")))
		require.NoError(t, guard.Do(ctx, h, sku, increment("n")))
		require.Equal(t, []storage.EntryKind{"claim", "write", "write"}, w.kinds())
		require.ErrorContains(t, guard.Do(ctx, h, sku, set("n", "5"), guard.Retryable()), "took no effect")
		err := guard.Do(ctx, h, sku, set("n", "5"))
		require.ErrorIs(t, err, guard.ErrOvertaken)
		require.ErrorContains(t, err, "begin it again")
		return nil
	}))
	require.Equal(t, "2", w.store.Read("n"))
}

func TestHold_GoesOnAfterADoubtThatIsSettledAsApplied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
			w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost), Resolve: func(storage.InDoubt) error { return errShop }})
			err := guard.Do(ctx, h, sku, increment("n"))
			require.ErrorIs(t, err, guard.ErrUnknownOutcome)
			require.NotContains(t, err.Error(), "this Hold is over")
			require.ErrorIs(t, guard.Do(ctx, h, sku, increment("n")), errShop, "not before it is settled")
			w.store.SetFaults(memory.Faults{})
			return guard.Do(ctx, h, sku, increment("n"))
		}))
		require.Equal(t, "2", w.store.Read("n"))
		require.Equal(t, []storage.EntryKind{"claim", "write", "write"}, w.kinds())
	})
}

func TestHold_ConcurrentTransactionsAreSerial(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		start := time.Now()
		require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
			errs := make(chan error)
			for range 5 {
				go func() { errs <- guard.Do(ctx, h, sku, sleeping(time.Second)) }()
			}
			for range 5 {
				require.NoError(t, <-errs)
			}
			return nil
		}))
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, "5", w.store.Read("n"))
	})
}

// Hold ends the transactions of other goroutines, also one whose context has nothing to do with its own, and waits for
// them.
func TestHold_EndsTransactionsOfAnyContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		ended := make(chan error, 1)
		running := true
		require.NoError(t, guard.Hold(t.Context(), g, sku, func(_ context.Context, h held) error {
			began := make(chan struct{})
			go func() {
				ended <- guard.Do(context.WithoutCancel(t.Context()), h, sku, func(ctx context.Context, _ *memory.Tx) error {
					close(began)
					<-ctx.Done()
					time.Sleep(time.Second)
					running = false
					return ctx.Err()
				})
			}()
			<-began
			return nil
		}))
		require.False(t, running)
		require.ErrorIs(t, <-ended, fence.ErrReleased)
	})
}

// A free turn and an ended context are both ready, and select takes either. The reason is the lost lease in both cases.
func TestHold_ACallAfterTheLossNamesTheLoss(t *testing.T) {
	w, g := newProcess(t)
	require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
		w.locks.Lose(sku)
		<-ctx.Done()
		for range 20 {
			err := guard.Do(ctx, h, sku, increment("n"))
			require.ErrorIs(t, err, fence.ErrLeaseLost)
			require.NotContains(t, err.Error(), "behind another call")
		}
		return nil
	}))
}
