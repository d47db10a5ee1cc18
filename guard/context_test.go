package guard_test

import (
	"bytes"
	"context"
	"log/slog"
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
			done := ctx.Done() // asked for later, it looks at the lease
			w.locks.Lose(sku)
			<-done
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

// A process that was stopped past its deadline runs on before its timers do: only who asks the lease learns of the loss.
func TestContext_AsksTheLease(t *testing.T) {
	asks := map[string]func(ctx context.Context) error{
		"Err": func(ctx context.Context) error { return ctx.Err() },
		"Done": func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
				return nil
			}
		},
		"derived": func(ctx context.Context) error {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			return derived.Err()
		},
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var over atomic.Bool
				locker := &hookedLocker{Locker: w.locks.NewLocker("a"), loss: func() error {
					if over.Load() {
						return &fence.LeaseLostError{Reason: fence.LossDeadline}
					}
					return nil
				}}
				g := w.processOn(locker, nil)
				fn := func(ctx context.Context, _ *memory.Tx) error {
					require.NoError(t, ask(ctx), name)
					over.Store(true)
					defer over.Store(false)
					err := ask(ctx)
					require.Error(t, err, name)
					require.ErrorIs(t, context.Cause(ctx), fence.ErrLeaseLost, name)
					return err
				}
				require.ErrorIs(t, guard.Do(t.Context(), g, sku, fn), fence.ErrLeaseLost)
				require.ErrorIs(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, _ held) error { return fn(ctx, nil) }), fence.ErrLeaseLost)
				require.ErrorIs(t, guard.Hold(t.Context(), g, sku, func(_ context.Context, h held) error {
					return guard.Do(context.Background(), h, sku, fn)
				}), fence.ErrLeaseLost)
				lease, err := locker.Acquire(t.Context(), "other")
				require.NoError(t, err)
				require.ErrorIs(t, guard.Do(t.Context(), g.UnderLease(lease), "other", fn), fence.ErrLeaseLost)
			})
		})
	}
}

// A transaction that has ended leaves the lease bound to the context of its Hold.
func TestContext_OfAHoldEndsWithTheLeaseAfterATransaction(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		loses := func(context.Context, *memory.Tx) error {
			w.locks.Lose(sku)
			synctest.Wait()
			return nil
		}
		g := w.process("a", nil)
		for name, last := range map[string]func(context.Context, *memory.Tx) error{"after": set("k", "v"), "within": loses} {
			require.ErrorIs(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
				told, stop := context.WithCancel(ctx) // doesn't ask
				defer stop()
				require.NoError(t, guard.Do(context.Background(), h, sku, last))
				if name == "after" {
					require.NoError(t, ctx.Err())
					_ = loses(ctx, nil)
				}
				require.ErrorIs(t, context.Cause(told), fence.ErrLeaseLost, name)
				return ctx.Err()
			}), fence.ErrLeaseLost, name)
		}
	})
}

// A function hangs while the rest of its process is well and goes on renewing the lease. Another process gets the
// resource all the same, and what the first one writes when it wakes up is rejected.
func TestMaxRun_AHangingFunctionLosesItsResource(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		a := w.process("a", &guard.Config{MaxRun: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b := w.process("b", nil)
		hung := make(chan error, 1)
		go func() {
			hung <- guard.Do(t.Context(), a, sku, func(ctx context.Context, tx *memory.Tx) error {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
				time.Sleep(time.Minute)
				return increment("n")(ctx, tx)
			})
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, <-hung, guard.ErrStaleToken)
		require.Equal(t, "1", w.store.Read("n"))
		require.Contains(t, log.String(), "a function runs for too long; its resource is released")
		require.NoError(t, guard.Do(t.Context(), a, sku, increment("n")))
	})
}

func TestMaxRun_DoesNotCountTheDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		slow := func() { time.Sleep(3 * time.Second) }
		w.store.SetFaults(memory.Faults{
			Claim:  func(fence.Grant) error { slow(); return nil },
			Begin:  func([]storage.Claim) error { slow(); return nil },
			Commit: func(storage.InDoubt) memory.Fate { slow(); return memory.Normal },
		})
		g := w.process("a", &guard.Config{MaxRun: time.Second})
		done := func(ctx context.Context, _ *memory.Tx) error { return ctx.Err() }
		require.NoError(t, guard.Do(t.Context(), g, sku, done))
		require.NotZero(t, w.locks.Holder(sku), "it is kept")
	})
}

// What is released because a function overran is not the next call's any more, also while the release is under way.
func TestMaxRun_TheNextCallRunsUnderAnotherGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.processOn(slow(w.locks.NewLocker("a"), time.Second), &guard.Config{MaxRun: 3 * time.Second})
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, func(ctx context.Context, _ *memory.Tx) error {
			<-ctx.Done()
			return ctx.Err()
		}), context.DeadlineExceeded)
		require.NoError(t, guard.Do(t.Context(), g, sku, func(ctx context.Context, _ *memory.Tx) error {
			time.Sleep(2 * time.Second)
			return context.Cause(ctx)
		}))
		require.Equal(t, 2, w.locks.Grants())
	})
}

// The database can't be reached from here: this holder gives up, though its callers
// wait for as long as they may, and the one who can reach it gets on.
func TestStoreTimeout_AHolderWithoutItsDatabaseGivesUp(t *testing.T) {
	for _, step := range []string{"claim", "begin", "recall"} {
		t.Run(step, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a := w.on(cutAt(w.store, step), nil)
				b := w.process("b", nil)
				failed := make(chan error, 5)
				for range cap(failed) {
					go func() { failed <- doOnce(t.Context(), a, sku, increment("n"), guard.Once("k", nil)) }()
				}
				synctest.Wait()
				start := time.Now()
				require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
				require.Equal(t, 10*time.Second, time.Since(start))
				require.ErrorIs(t, <-failed, guard.ErrStoreUnavailable)
			})
		})
	}
}

func TestStoreTimeout_IsDistinctFromTheCallersDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, silent := range []storage.Store[*memory.Tx]{cutAt(w.store, "claim"), &busyStore{Store: w.store}} {
			g := w.on(silent, &guard.Config{StoreTimeout: time.Minute})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := guard.Do(ctx, g, sku, increment("n"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, guard.ErrStoreUnavailable)
			start := time.Now()
			err = guard.Do(t.Context(), g, sku, increment("n"))
			require.ErrorContains(t, err, "guard: sku/42: claim: context deadline exceeded: guard: database unavailable: no answer in time (Config.StoreTimeout is 1m0s)")
			require.Equal(t, time.Minute, time.Since(start))
		}
	})
}

func TestClose_EndsTheWaitForAnUnreachableDatabase(t *testing.T) {
	for _, step := range []string{"claim", "begin", "recall"} {
		t.Run(step, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.on(cutAt(w.store, step), &guard.Config{StoreTimeout: time.Hour})
				failed := make(chan error, 1)
				go func() { failed <- doOnce(t.Context(), g, sku, increment("n"), guard.Once("k", nil)) }()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				require.NoError(t, g.Close(ctx))
				require.Equal(t, time.Second, time.Since(start))
				require.ErrorIs(t, <-failed, guard.ErrClosed)
				require.Zero(t, w.locks.Holder(sku))
			})
		})
	}
}
