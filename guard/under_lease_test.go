package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func TestUnderLease_WritesUnderTheCallersLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, other := w.process("a", nil), w.process("b", nil)
		lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
		require.NoError(t, err)
		write := func(ctx context.Context, h held) error {
			require.Equal(t, lease.Grant(), guard.Grants(ctx)[0])
			return guard.Do(ctx, h, sku, increment("n"))
		}
		for range 2 {
			require.NoError(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, write))
		}
		require.Equal(t, lease.Grant(), w.locks.Holder(sku), "the lease is the caller's")

		err = guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, h held) error {
			w.locks.Lose(sku)
			synctest.Wait()
			require.ErrorIs(t, context.Cause(ctx), fence.ErrLeaseLost)
			require.NoError(t, guard.Do(t.Context(), other, sku, increment("n")))
			return guard.Do(context.WithoutCancel(ctx), h, sku, increment("n"))
		})
		require.ErrorIs(t, err, guard.ErrStaleToken)
		require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, write), fence.ErrLeaseLost)
		require.Equal(t, "3", w.store.Read("n"))
	})
}

// MaxRun is meant for requests. A leader leads for longer, and the Guard doesn't decide
// about its lease: MaxRun bounds the transactions alone.
func TestUnderLease_MaxRunDoesNotBoundAHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", &guard.Config{MaxRun: 30 * time.Second})
		lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
		require.NoError(t, err)
		require.NoError(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, h held) error {
			for range 3 {
				time.Sleep(time.Hour)
				require.NoError(t, guard.Do(ctx, h, sku, increment("n")))
			}
			start := time.Now()
			require.ErrorIs(t, guard.Do(ctx, h, sku, func(ctx context.Context, _ *memory.Tx) error {
				<-ctx.Done()
				return ctx.Err()
			}), context.DeadlineExceeded)
			require.Equal(t, 30*time.Second, time.Since(start))
			synctest.Wait()
			require.NoError(t, ctx.Err())
			return guard.Do(ctx, h, sku, increment("n"))
		}))
		require.ErrorIs(t, guard.Do(t.Context(), g.UnderLease(lease), sku, func(ctx context.Context, _ *memory.Tx) error {
			<-ctx.Done()
			return ctx.Err()
		}), context.DeadlineExceeded)
		require.NoError(t, lease.Context().Err())
		require.Equal(t, "4", w.store.Read("n"))
	})
}

// What one Hold under a lease has left in doubt, the next one asks about first.
func TestUnderLease_SettlesWhatTheLastHoldLeftInDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		fate  memory.Fate
		value string
	}{"not applied": {memory.Late, "2"}, "applied": {memory.ReplyLost, "3"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.process("a", nil)
				lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
				require.NoError(t, err)
				began := false
				write := func(ctx context.Context, h held) error {
					began = true
					return guard.Do(ctx, h, sku, increment("n"))
				}
				w.store.SetFaults(memory.Faults{Commit: fates(test.fate), Resolve: func(storage.InDoubt) error { return temporaryError{} }})
				require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, write), guard.ErrUnknownOutcome)
				for range 2 {
					began = false
					err = guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, write)
					require.ErrorContains(t, err, "an earlier operation is unresolved")
					require.False(t, began)
				}
				w.store.SetFaults(memory.Faults{})
				for range 2 {
					require.NoError(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, write))
				}
				w.store.Deliver()
				require.Equal(t, test.value, w.store.Read("n"))
			})
		})
	}
}

// What is in doubt is kept for as long as it can matter: until it is settled, or a later grant
// has claimed.
func TestUnderLease_ForgetsDoubtsThatNoLongerMatter(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *world, g *guard.Guard[*memory.Tx], one, two fence.Lease){
		"settled": func(t *testing.T, w *world, g *guard.Guard[*memory.Tx], one, _ fence.Lease) {
			w.store.SetFaults(memory.Faults{})
			require.NoError(t, guard.Hold(t.Context(), g.UnderLease(one), sku, func(context.Context, held) error { return nil }))
		},
		"superseded": func(t *testing.T, _ *world, g *guard.Guard[*memory.Tx], one, two fence.Lease) { // which needs no answer
			later, other := one.Grant(), two.Grant()
			later.Token, other.Token = later.Token+2, other.Token+2
			require.NoError(t, guard.Do(t.Context(), g.UnderGrant(later, other), sku, increment("n")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.process("a", nil)
				locker := w.locks.NewLocker("leader")
				one, err := locker.Acquire(t.Context(), sku)
				require.NoError(t, err)
				two, err := locker.Acquire(t.Context(), "other")
				require.NoError(t, err)
				w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost), Resolve: func(storage.InDoubt) error { return errShop }})
				require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(one, two), sku, func(ctx context.Context, h held) error {
					return guard.Do(ctx, h, sku, increment("n"))
				}), guard.ErrUnknownOutcome)
				require.Equal(t, 2, guard.Doubts(g))
				end(t, w, g, one, two)
				require.Zero(t, guard.Doubts(g))
			})
		})
	}
}

func TestUnderLease_RejectsLeasesItCantUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.process("a", nil)
	lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
	require.NoError(t, err)
	nothing := func(context.Context, held) error { return nil }
	require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), sku, nil), guard.ErrInvalid)
	require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(nil), sku, nothing), guard.ErrInvalid)
	require.ErrorIs(t, guard.Hold(t.Context(), (*guard.Guard[*memory.Tx])(nil).UnderLease(lease), sku, nothing), guard.ErrInvalid)
	require.NoError(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, _ held) error {
		require.ErrorIs(t, guard.Hold(ctx, g.UnderLease(lease), lease.Grant().Resource, nothing), guard.ErrInvalid)
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, guard.Hold(ctx, g.UnderLease(lease), lease.Grant().Resource, nothing), context.Canceled)
	require.NoError(t, lease.Release(t.Context()))
	require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, nothing), fence.ErrReleased)
}

func TestUnderLease_CloseWaitsForItsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
		require.NoError(t, err)
		running := make(chan error, 1)
		go func() {
			running <- guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, h held) error {
				time.Sleep(time.Minute)
				return guard.Do(ctx, h, sku, increment("n"))
			})
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, g.Close(t.Context()))
		require.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, <-running)
		require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(context.Context, held) error { return nil }), guard.ErrClosed)
		require.NotZero(t, w.locks.Holder(sku))
	})
}
