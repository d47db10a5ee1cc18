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

func TestRetryable_RunsAgainWhatTookNoEffect(t *testing.T) {
	for name, test := range map[string]struct {
		disturb func(ctx context.Context, w *world, g *guard.Guard[*memory.Tx]) error
		err     error // without the option
		grants  int   // of both calls
	}{
		"overtaken": {func(ctx context.Context, w *world, _ *guard.Guard[*memory.Tx]) error {
			return doUnderGrant(ctx, w.store, w.locks.Holder(sku), increment("n"))
		}, guard.ErrOvertaken, 2},
		"stale": {func(ctx context.Context, w *world, _ *guard.Guard[*memory.Tx]) error {
			w.locks.Lose(sku)
			return guard.Do(ctx, w.process("b", nil), sku, increment("n"))
		}, guard.ErrStaleToken, 5},
		"lease lost": {func(_ context.Context, w *world, _ *guard.Guard[*memory.Tx]) error {
			w.locks.Lose(sku)
			return fence.ErrLeaseLost
		}, fence.ErrLeaseLost, 3},
		"failed over": {func(_ context.Context, w *world, _ *guard.Guard[*memory.Tx]) error {
			return &guard.RejectedError{Reason: storage.ReasonFailedOver, Stage: storage.StageRun, Grant: w.locks.Holder(sku)}
		}, guard.ErrFailedOver, 3},
		"not applied": {func(_ context.Context, w *world, _ *guard.Guard[*memory.Tx]) error {
			w.store.SetFaults(memory.Faults{Commit: fates(memory.RequestLost)})
			return nil
		}, memory.ErrReplyLost, 2},
		"temporary": {func(context.Context, *world, *guard.Guard[*memory.Tx]) error {
			return temporaryError{}
		}, temporaryError{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				call := func(opts ...guard.Option) (runs int, err error) {
					g := w.process("a", nil)
					return runs, guard.Do(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) error {
						if err := increment("mine")(ctx, tx); err != nil {
							return err
						}
						if runs++; runs == 1 {
							return test.disturb(context.WithoutCancel(ctx), w, g)
						}
						return nil
					}, opts...)
				}
				runs, err := call()
				require.ErrorIs(t, err, test.err)
				require.Equal(t, 1, runs)
				require.Empty(t, w.store.Read("mine"))
				runs, err = call(guard.Retryable())
				require.NoError(t, err)
				require.Equal(t, 2, runs)
				require.Equal(t, "1", w.store.Read("mine"))
				require.Equal(t, test.grants, w.locks.Grants())
			})
		})
	}
}

// What a raw COMMIT wrote stays, so nothing runs again, whatever else the error says.
func TestRetryable_NeverRunsAgainAfterARawCommit(t *testing.T) {
	for name, beside := range map[string]error{
		"temporary":  temporaryError{},
		"lease lost": &fence.LeaseLostError{},
		"overtaken":  &guard.RejectedError{Reason: storage.ReasonOvertaken, Stage: storage.StageSeal},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.process("a", nil)
				ended := errors.Join(beside, guard.ErrTxEnded)
				runs := 0
				require.ErrorIs(t, guard.Do(t.Context(), g, sku, func(context.Context, *memory.Tx) error {
					runs++
					return ended
				}, guard.Retryable()), guard.ErrTxEnded)
				require.ErrorIs(t, guard.Hold(t.Context(), g, sku, func(context.Context, guard.Runner[*memory.Tx]) error {
					runs++
					return ended
				}, guard.Retryable()), guard.ErrTxEnded)
				require.Equal(t, 2, runs, "one of each")
			})
		})
	}
}

func TestRetryable_NeverRunsAgainAfterAnUnknownOutcome(t *testing.T) {
	rejected := func(reason storage.Reason) func(fence.Grant) error {
		return func(grant fence.Grant) error {
			return &guard.RejectedError{Reason: reason, Stage: storage.StageSeal, Grant: grant}
		}
	}
	for name, met := range map[string]func(fence.Grant) error{
		"temporary":   func(fence.Grant) error { return temporaryError{} },
		"lease lost":  func(fence.Grant) error { return fence.ErrLeaseLost },
		"stale":       rejected(storage.ReasonStale),
		"failed over": rejected(storage.ReasonFailedOver),
		"overtaken":   rejected(storage.ReasonOvertaken),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.process("a", nil)
				w.store.SetFaults(memory.Faults{
					Commit:  fates(memory.ReplyLost),
					Resolve: func(d storage.InDoubt) error { return met(d.Claims[0].Grant) },
				})
				require.ErrorIs(t, guard.Do(t.Context(), g, sku, increment("n"), guard.Retryable()), guard.ErrUnknownOutcome)
				require.Equal(t, "1", w.store.Read("n"))
				require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite}, w.kinds())
			})
		})
	}
}

func TestRetryable_IsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		runs := 0
		fail := func(context.Context, *memory.Tx) error {
			runs++
			return temporaryError{}
		}
		start := time.Now()
		require.Equal(t, temporaryError{}, guard.Do(t.Context(), g, sku, fail, guard.Retryable()))
		require.Equal(t, 8, runs)
		require.Less(t, time.Since(start), 2*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := guard.Do(ctx, g, sku, fail, guard.Retryable())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, temporaryError{}, "what it failed with before is not lost")
		require.Equal(t, 9, runs)
	})
}
