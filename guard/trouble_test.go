package guard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// A function hangs while the rest of its process is well and goes on renewing the
// lease. Another process gets the resource all the same, and what the first one
// writes when it wakes up is refused.
func TestMaxRun_AHangingFunctionKeepsNobodyOut_HA6_L1(t *testing.T) {
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

// It is the function's time: the database may take longer, before and after it.
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

// With nobody else there the fence lets it commit.
func TestMaxRun_TheFenceDecidesAboutTheCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", &guard.Config{MaxRun: time.Second})
		require.NoError(t, guard.Do(t.Context(), g, sku, sleeping(time.Hour)))
		require.NoError(t, guard.Do(t.Context(), g, []string{sku, "b"}, sleeping(time.Hour)))
		require.Zero(t, w.locks.Holder("b"))
		require.NoError(t, guard.Do(t.Context(), g, sku, sleeping(time.Second-1)))
		require.NotZero(t, w.locks.Holder(sku))
		require.ErrorIs(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, _ held) error {
			<-ctx.Done()
			return ctx.Err()
		}), context.DeadlineExceeded)
	})
}

// What is released because a function overran is not the next call's any more, also
// while the release is under way.
func TestMaxRun_TheNextCallRunsUnderAnotherGrant_L1(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.processOn(slowLocker{w.locks.NewLocker("a"), time.Second}, &guard.Config{MaxRun: 3 * time.Second})
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, func(ctx context.Context, _ *memory.Tx) error {
			<-ctx.Done()
			return ctx.Err()
		}), context.DeadlineExceeded)
		require.NoError(t, guard.Do(t.Context(), g, sku, func(ctx context.Context, _ *memory.Tx) error {
			time.Sleep(2 * time.Second)
			return context.Cause(ctx)
		}))
	})
}

// cutStore is a store whose network was cut: it can't be reached at one step.
type cutStore struct {
	*memory.Store
	at string
}

func (s *cutStore) Claim(ctx context.Context, g fence.Grant) (storage.Claim, error) {
	if s.at == "claim" {
		<-ctx.Done()
		return storage.Claim{}, ctx.Err()
	}
	return s.Store.Claim(ctx, g)
}

func (s *cutStore) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*memory.Tx], error) {
	if s.at == "begin" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Begin(ctx, claims...)
}

func (s *cutStore) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) ([]byte, bool, error) {
	if s.at == "recall" {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return s.Store.Recall(ctx, key, claims...)
}

func (s *cutStore) Resolve(ctx context.Context, d storage.InDoubt) (bool, error) {
	if s.at == "resolve" {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return s.Store.Resolve(ctx, d)
}

// The database can't be reached from here: this holder gives up, though its callers
// wait for as long as they may, and the one who can reach it gets on.
func TestStoreTimeout_AHolderWithoutItsDatabaseKeepsNobodyOut_HD17_L1(t *testing.T) {
	for _, step := range []string{"claim", "begin", "recall"} {
		t.Run(step, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, err := guard.New(w.locks.NewLocker("a"), &cutStore{Store: w.store, at: step}, nil)
				require.NoError(t, err)
				b := w.process("b", nil)
				failed := make(chan error, 5)
				for range cap(failed) {
					go func() { failed <- doOnce(t.Context(), a, sku, increment("n"), guard.Once("k", nil)) }()
				}
				synctest.Wait()
				start := time.Now()
				require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
				require.Equal(t, 15*time.Second, time.Since(start))
				require.ErrorIs(t, <-failed, guard.ErrStoreTimeout)
				require.NoError(t, a.Close(t.Context()))
			})
		})
	}
}

func TestStoreTimeout_IsNamedApartFromTheCallersOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, err := guard.New(w.locks.NewLocker("a"), &cutStore{Store: w.store, at: "claim"}, &guard.Config{StoreTimeout: time.Minute})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = guard.Do(ctx, g, sku, increment("n"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, guard.ErrStoreTimeout)
		start := time.Now()
		err = guard.Do(t.Context(), g, sku, increment("n"))
		require.ErrorContains(t, err, "guard: sku/42: claim: context deadline exceeded: guard: database did not answer in time (Config.StoreTimeout is 1m0s)")
		require.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, g.Close(t.Context()))
	})
}

// Close waits for no database: what has not begun to run there ends with the
// contexts of what has.
func TestClose_EndsTheWaitForADatabaseThatCannotBeReached(t *testing.T) {
	for _, step := range []string{"claim", "begin", "recall"} {
		t.Run(step, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g, err := guard.New(w.locks.NewLocker("a"), &cutStore{Store: w.store, at: step}, &guard.Config{StoreTimeout: time.Hour})
				require.NoError(t, err)
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

func TestHoldLease_WritesUnderALeaseOfTheCallers_G2_G3(t *testing.T) {
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
func TestHoldLease_IsNotBoundByMaxRun(t *testing.T) {
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
		require.NoError(t, lease.Context().Err())
		require.Equal(t, "4", w.store.Read("n"))
	})
}

// What one Hold under a lease has left in doubt, the next one asks about first.
func TestHoldLease_SettlesWhatTheLastOneLeftInDoubt_G6(t *testing.T) {
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

// What is in doubt is kept for as long as it can matter: until it is settled, or the
// lease has ended.
func TestHoldLease_KeepsNoDoubtForEver(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *world, g *guard.Guard[*memory.Tx], lease fence.Lease){
		"settled": func(t *testing.T, _ *world, g *guard.Guard[*memory.Tx], lease fence.Lease) {
			require.NoError(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(context.Context, held) error { return nil }))
		},
		"released": func(t *testing.T, _ *world, _ *guard.Guard[*memory.Tx], lease fence.Lease) {
			require.NoError(t, lease.Release(t.Context()))
		},
		"lost": func(_ *testing.T, w *world, _ *guard.Guard[*memory.Tx], _ fence.Lease) { w.locks.Lose(sku) },
		"lost meanwhile": func(t *testing.T, w *world, g *guard.Guard[*memory.Tx], lease fence.Lease) {
			require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, h held) error {
				w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost), Resolve: func(storage.InDoubt) error { return errShop }})
				w.locks.Lose(sku)
				return guard.Do(context.WithoutCancel(ctx), h, sku, increment("n"))
			}), guard.ErrUnknownOutcome)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.process("a", nil)
				lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
				require.NoError(t, err)
				w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost), Resolve: func(storage.InDoubt) error { return errShop }})
				require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, h held) error {
					return guard.Do(ctx, h, sku, increment("n"))
				}), guard.ErrUnknownOutcome)
				require.Equal(t, 1, guard.Doubts(g))
				w.store.SetFaults(memory.Faults{})
				end(t, w, g, lease)
				synctest.Wait()
				require.Zero(t, guard.Doubts(g))
			})
		})
	}
}

func TestHoldLease_RefusesWhatItCantRun(t *testing.T) {
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

func TestHoldLease_IsWaitedForByClose(t *testing.T) {
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

// The lock service was restored, and issues lower tokens than it did. A grant that
// is refused for one that was known when this one was asked for says so.
func TestClaim_NamesALockServiceThatWentBack_HD5(t *testing.T) {
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
		require.NotErrorIs(t, err, guard.ErrTokensWentBack, "it may just have come late")
		runs := w.locks.Grants()
		err = guard.Do(t.Context(), fresh, sku, increment("n"), guard.Retryable())
		require.ErrorIs(t, err, guard.ErrTokensWentBack)
		require.ErrorIs(t, err, guard.ErrStaleToken)
		require.ErrorContains(t, err, "before token 51 was asked for")
		require.ErrorContains(t, err, "raise its epoch above 1")
		require.Equal(t, runs+1, w.locks.Grants(), "trying again is of no use")
		require.ErrorIs(t, guard.Do(t.Context(), fresh, sku, increment("n")), guard.ErrTokensWentBack)
		w.locks.SetEpoch(2)
		require.NoError(t, guard.Do(t.Context(), fresh, sku, increment("n")))
	})
}

// sleepy is a store whose client's machine slept while it asked, with its clock: it
// finds that more time has passed for the database than for itself.
type sleepy struct{ *memory.Store }

func (s sleepy) Claim(ctx context.Context, g fence.Grant) (storage.Claim, error) {
	c, err := s.Store.Claim(ctx, g)
	if stale := new(guard.RejectedError); errors.As(err, &stale) {
		stale.Age += time.Hour
	}
	return c, err
}

// A machine that stood still between asking and claiming is late, and no more than
// that: trying again helps.
func TestClaim_AfterAFrozenClockIsJustStale_HA5(t *testing.T) {
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
		require.NotErrorIs(t, err, guard.ErrTokensWentBack)
	})
}
