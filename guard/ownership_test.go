package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func sleeping(d time.Duration) func(context.Context, *memory.Tx) error {
	return func(ctx context.Context, tx *memory.Tx) error {
		time.Sleep(d)
		return increment("n")(ctx, tx)
	}
}

func TestKeepFor_OwnershipOutlastsTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		for range 5 {
			require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
			time.Sleep(10*time.Second - time.Nanosecond)
			require.NotZero(t, w.locks.Holder(sku))
		}
		require.Equal(t, 1, w.locks.Grants())
		require.Equal(t, []storage.EntryKind{"claim", "write", "write", "write", "write", "write"}, w.kinds())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Zero(t, w.locks.Holder(sku))
		require.Zero(t, guard.Lines(g))
	})
}

func TestKeepFor_NegativeReleasesAfterEveryCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", &guard.Config{KeepFor: -1})
		for i := range 3 {
			require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
			require.Zero(t, w.locks.Holder(sku))
			require.Equal(t, i+1, w.locks.Grants())
		}
		require.Zero(t, guard.Lines(g))

		done := make(chan error)
		for range 3 {
			go func() { done <- guard.Do(t.Context(), g, sku, sleeping(time.Second)) }()
		}
		for range 3 {
			require.NoError(t, <-done)
		}
		require.Equal(t, 6, w.locks.Grants(), "also between queued calls")
	})
}

// Ten calls of 30 ms are queued here when another process comes at 15 ms. With
// 100 ms to go on, the call that begins at 90 ms is the last of them.
func TestMaxHold_QueuedCallsGoOnForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process("a", nil), w.process("b", nil)
		start := time.Now()
		ends := make(chan time.Duration, 10)
		for range 10 {
			go func() {
				if guard.Do(t.Context(), a, sku, sleeping(30*time.Millisecond)) == nil {
					ends <- time.Since(start)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(15 * time.Millisecond)
		require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
		require.Equal(t, 120*time.Millisecond, time.Since(start))
		require.Equal(t, "5", w.store.Read("n"))
		for i := range 10 {
			require.Equal(t, time.Duration(i+1)*30*time.Millisecond, <-ends)
		}
		require.Equal(t, 3, w.locks.Grants())
	})
}

func TestQueue_IsFirstComeFirstServed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		var order []int
		for i := range 20 {
			go func() {
				_ = guard.Do(t.Context(), g, sku, func(context.Context, *memory.Tx) error {
					time.Sleep(time.Millisecond)
					order = append(order, i)
					return nil
				})
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range 20 {
			require.Equal(t, i, order[i])
		}
	})
}

func TestQueue_WaitingCallLeavesAtOnceWhenItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		go func() { _ = guard.Do(t.Context(), g, sku, sleeping(time.Hour)) }()
		synctest.Wait()
		last := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			time.Sleep(time.Millisecond)
			last <- guard.Do(t.Context(), g, sku, increment("n"))
		}()
		start := time.Now()
		err := guard.Do(ctx, g, sku, set("k", "v"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "guard: sku/42: gave up waiting behind another call of this process (a call made inside its function has to use that function's context): ")
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, <-last, "those behind move up")
		require.Equal(t, "2", w.store.Read("n"))
		require.Empty(t, w.store.Read("k"))
	})
}

// What is lost together is one line in the log, which tells what was in use from what was merely kept.
func TestLost_TogetherIsOneLine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		g := w.process("a", &guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for n := range 160 {
			require.NoError(t, guard.Do(t.Context(), g, fmt.Sprint("kept/", n), increment("n")))
		}
		err := guard.Do(t.Context(), g, []string{"used/1", "used/2"}, func(ctx context.Context, _ *memory.Tx) error {
			for n := range 160 {
				require.True(t, w.locks.Lose(fmt.Sprint("kept/", n)))
			}
			require.True(t, w.locks.Lose("used/1"))
			require.True(t, w.locks.Lose("used/2"))
			synctest.Wait()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, fence.ErrLeaseLost)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Regexp(t, `level=WARN msg="guard: leases lost" resources=162 in_use=2 reason="lease expired or revoked" used="\[used/. used/.\]"`, log.String())
	})
}

// While one call runs and another is queued behind it, the lease is lost, or its grant superseded.
func TestStale_QueuedCallAcquiresAnew(t *testing.T) {
	for name, test := range map[string]struct {
		disturb func(w *world)
		want    error
	}{
		"lost": {func(w *world) { w.locks.Lose(sku) }, nil},
		"stale": {func(w *world) { // by a grant between the first and the second of the lock service
			w.locks.SetToken(3)
			_, err := w.store.Claim(context.Background(), storage.Claim{Grant: grant(2)})
			require.NoError(w, err)
		}, guard.ErrStaleToken},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.process("a", nil)
				first, second := make(chan error, 1), make(chan error, 1)
				go func() {
					first <- guard.Do(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) error {
						time.Sleep(time.Second)
						test.disturb(w)
						return increment("n")(ctx, tx)
					})
				}()
				synctest.Wait()
				go func() {
					second <- guard.Do(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) error {
						synctest.Wait()
						require.NoError(t, ctx.Err())
						return increment("n")(ctx, tx)
					})
				}()
				require.ErrorIs(t, <-first, test.want)
				require.NoError(t, <-second)
				require.Equal(t, 2, w.locks.Grants())
			})
		})
	}
}

// Resources that were used once, all at about the same time, expire together. Their releases must not crowd out
// renewals, so few of them are under way at a time, and what waits for its release can still be used, or passed on.
func TestKeepFor_ThousandsThatExpireTogetherAreReleasedAFewAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		stalled := make(chan struct{})
		goOn := sync.OnceFunc(func() { close(stalled) })
		defer goOn()
		var begun sync.Map // the resources whose releases have begun
		g := w.processOn(&hookedLocker{Locker: w.locks.NewLocker("a"), release: func(_ context.Context, resource string) error {
			begun.Store(resource, true)
			<-stalled
			return nil
		}}, nil)
		const many = 3000
		for i := range many {
			w.do(g, fmt.Sprint("sku/", i))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var kept []string
		for i := range many {
			name := fmt.Sprint("sku/", i)
			if _, is := begun.Load(name); !is {
				require.NotZero(t, w.locks.Holder(name))
				kept = append(kept, name)
			}
		}
		require.Len(t, kept, many-8)
		w.do(g, kept[0])
		require.Equal(t, many, w.locks.Grants(), "it was still owned")
		require.True(t, w.locks.Contend(kept[1]))
		synctest.Wait()
		_, is := begun.Load(kept[1])
		require.True(t, is, "another process waits for it, so it is released at once")
		goOn()
		synctest.Wait()
		require.NotZero(t, w.locks.Holder(kept[0]), "it was used a moment ago")
		require.Equal(t, 1, guard.Lines(g))
	})
}

func (w *world) do(g *guard.Guard[*memory.Tx], resource string) {
	w.Helper()
	if err := guard.Do(context.Background(), g, resource, func(context.Context, *memory.Tx) error { return nil }); err != nil {
		w.Error(err)
	}
}

// silent returns a lock service without an answer, which says so after patience.
func silent(l fence.Locker, patience time.Duration, reason fence.UnavailableReason, asked *int) *hookedLocker {
	return &hookedLocker{Locker: l, acquire: func(ctx context.Context, resources ...string) error {
		*asked++
		err := &fence.UnavailableError{Call: "acquire " + resources[0], Reason: reason}
		select {
		case <-time.After(patience):
		case <-ctx.Done():
			err.Err = ctx.Err()
		}
		return err
	}}
}

// callAll makes one call for each list of resources, in order, and returns after how long each failed.
func callAll(t *testing.T, g *guard.Guard[*memory.Tx], resources ...[]string) []time.Duration {
	t.Helper()
	took := make([]time.Duration, len(resources))
	start := time.Now()
	for i, names := range resources {
		go func() {
			err := guard.Do(t.Context(), g, names, set("k", "v"))
			took[i] = time.Since(start)
			if err == nil {
				panic("the call succeeded without a lock")
			}
		}()
		synctest.Wait()
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	return took
}

// Calls that wait in turn for a lock service without an answer would each wait for it as long as the one before.
func TestQueue_CallsFailTogetherWhenTheLockServiceDoesNotAnswer(t *testing.T) {
	const patience = 5 * time.Second
	one, two := []string{sku}, []string{sku, "sku/43"}
	for name, calls := range map[string][][]string{
		"one resource":      {one, one, one, one},
		"several resources": {two, one, two, {"sku/43"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				asked := 0
				g := w.processOn(silent(w.locks.NewLocker("a"), patience, fence.Unreachable, &asked), nil)
				for _, took := range callAll(t, g, calls...) {
					require.Equal(t, patience, took)
				}
				require.Equal(t, 1, asked)
				require.Zero(t, guard.Lines(g))
			})
		})
	}
}

// The end of a call's own context, and a lost queue position, say nothing about the calls behind it.
func TestQueue_CallsGoOnAfterAFailureThatIsNotTheirs(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			g := w.processOn(silent(w.locks.NewLocker("a"), 5*time.Second, fence.Unreachable, new(int)), nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go func() { _ = guard.Do(ctx, g, sku, set("k", "v")) }()
			synctest.Wait()
			require.Equal(t, []time.Duration{6 * time.Second}, callAll(t, g, []string{sku}))
		})
	})
	t.Run("queue position", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			g := w.processOn(silent(w.locks.NewLocker("a"), time.Second, fence.QueueLost, new(int)), nil)
			require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, callAll(t, g, []string{sku}, []string{sku}))
		})
	})
}

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
		require.ErrorContains(t, err, "is another one: set the lock service's epoch to 2")
		require.Equal(t, runs+1, w.locks.Grants(), "trying again is of no use")
		requireRejected(t, guard.Do(t.Context(), fresh, sku, increment("n")), storage.ReasonTokensWentBack)
		w.locks.SetEpoch(2)
		require.NoError(t, guard.Do(t.Context(), fresh, sku, increment("n")))
	})
}

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

// Two claims that find no other process's move show that none uses the resource. Else the lease is released, and the
// call doesn't wait for that; the next one of this process does, and Close.
func TestLease_IsKeptIfNoOtherProcessUsesTheResource(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		store := &leasedStore{hookedStore: &hookedStore{Store: w.store}}
		a := w.processWith(slow(w.locks.NewLocker("a"), time.Second), store, nil)
		b := w.on(store, nil)
		takes := func(g *guard.Guard[*memory.Tx], want time.Duration) {
			t.Helper()
			start := time.Now()
			w.do(g, sku)
			require.Equal(t, want, time.Since(start))
		}
		for range 2 {
			takes(a, 0)
			require.NotZero(t, w.locks.Holder(sku))
			takes(a, time.Second)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Zero(t, w.locks.Holder(sku))
			takes(b, 0)
		}
		for n := range 4 {
			takes(a, 0)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, n >= 2, w.locks.Holder(sku).Token > 0)
		}
		takes(b, time.Second)
		synctest.Wait()
		takes(a, 0)
		start := time.Now()
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(start))
		require.Zero(t, w.locks.Holder(sku))
	})
}

// The next call under a lease begins once it is known what became of the last one (G6), and looks for what its process
// saw.
func TestLease_WhatFailedLeavesItUnclaimed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		store := &leasedStore{hookedStore: &hookedStore{Store: w.store}}
		g := w.on(store, &guard.Config{ResolveTimeout: time.Second})
		w.do(g, sku)
		again := func(op func(context.Context, *memory.Tx) error, want error) {
			t.Helper()
			next := make(chan error, 1)
			require.ErrorIs(t, guard.Do(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) error {
				go func() { next <- guard.Do(t.Context(), g, sku, increment("n")) }()
				synctest.Wait()
				return op(ctx, tx)
			}), want)
			require.NoError(t, <-next)
		}
		again(func(context.Context, *memory.Tx) error { return errShop }, errShop)
		require.Equal(t, store.seen[1].Grant, store.seen[2].Grant)
		require.Equal(t, store.seen[1].Position, store.seen[2].Position)
		require.NotZero(t, store.seen[1].Position)

		var steps []string
		start := time.Now()
		store.before = func(_ context.Context, step string, _ []storage.Claim) error {
			if time.Since(start) < time.Second && step == "resolve" {
				return errShop
			}
			steps = append(steps, step)
			return nil
		}
		w.store.SetFaults(memory.Faults{Commit: fates(memory.Late)})
		again(increment("n"), guard.ErrUnknownOutcome)
		require.Equal(t, []string{"begin", "commit", "resolve", "claim", "begin", "commit"}, steps)
		require.ErrorIs(t, w.store.Deliver()[0], guard.ErrOvertaken)
		require.Equal(t, "2", w.store.Read("n"))
	})
}

// A claim that wasn't committed rules nothing out: an earlier COMMIT in doubt may still arrive, and a read without a
// lock would miss it.
func TestLease_AClaimThatFailedSettlesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		store := &leasedStore{hookedStore: &hookedStore{Store: w.store}}
		g := w.on(store, &guard.Config{ResolveTimeout: time.Millisecond})
		w.store.SetFaults(memory.Faults{Commit: fates(memory.Late), Resolve: func(storage.InDoubt) error { return errShop }})
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, increment("n")), guard.ErrUnknownOutcome)
		store.fails = true
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, increment("n")), errShop)
		synctest.Wait()
		before := w.locks.Grants()
		require.NoError(t, guard.Do(t.Context(), g, sku, reads("n", new(string)), guard.ReadOnly(), guard.Retryable()))
		require.Equal(t, before+1, w.locks.Grants())
	})
}
