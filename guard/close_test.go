package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func TestClose_FailsWaitingCallsAndWaitsForRunningOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, other := w.process("a", nil), w.process("b", nil)
		for i := range 100 {
			require.NoError(t, guard.Do(t.Context(), g, fmt.Sprint("idle/", i), increment("n")))
		}
		running, waiting, acquiring := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { running <- guard.Do(t.Context(), g, sku, sleeping(time.Minute)) }()
		go func() { _ = guard.Do(t.Context(), other, "taken", sleeping(time.Hour)) }()
		synctest.Wait()
		go func() { waiting <- guard.Do(t.Context(), g, sku, increment("n")) }()
		go func() { acquiring <- guard.Do(t.Context(), g, "taken", increment("n")) }()
		synctest.Wait()

		start := time.Now()
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- g.Close(t.Context()) }()
		}
		synctest.Wait()
		require.ErrorIs(t, <-waiting, guard.ErrClosed)
		require.ErrorIs(t, <-acquiring, guard.ErrClosed)
		require.ErrorIs(t, guard.Do(t.Context(), g, "new", increment("n")), guard.ErrClosed)
		require.ErrorIs(t, guard.Hold(t.Context(), g, "new", func(context.Context, held) error { return nil }), guard.ErrClosed)
		require.Zero(t, w.locks.Holder("idle/7"), "what is idle is released at once")
		require.NotZero(t, w.locks.Holder(sku))
		require.NoError(t, <-running)
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		require.Equal(t, time.Minute, time.Since(start))
		require.Zero(t, w.locks.Holder(sku))
		require.Zero(t, guard.Lines(g))
		require.NoError(t, g.Close(t.Context()))
		time.Sleep(time.Hour)
	})
}

// busyStore answers BeginOwn with errs, and then not at all.
type busyStore struct {
	*memory.Store
	errs []error
}

func (*busyStore) Beside(fence.Locker) (func() string, bool) {
	return func() string { return "a" }, true
}

func (s *busyStore) BeginOwn(ctx context.Context, limit time.Duration, _ ...storage.Claim) (_ storage.OwnTxn[*memory.Tx], _ []storage.Claim, err error) {
	if len(s.errs) == 0 {
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(limit):
			return nil, nil, context.DeadlineExceeded
		}
	}
	err, s.errs = s.errs[0], s.errs[1:]
	return nil, nil, err
}

func TestDo_ClaimsByItselfUnlessALockIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		store := &busyStore{w.store, []error{storage.ErrBusy, storage.ErrHeld}}
		g := w.on(store, &guard.Config{KeepFor: -1})
		require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
		require.Empty(t, store.errs)
		require.NoError(t, guard.Do(t.Context(), g, sku, reads("n", new(string)), guard.ReadOnly()))
	})
}

func TestClose_EndsTheWaitForAnotherProcessesTransaction(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.on(&busyStore{w.store, []error{storage.ErrBusy}}, &guard.Config{StoreTimeout: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := guard.Do(ctx, g, sku, increment("n"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "behind a call of another process")
		waiting := make(chan error, 1)
		go func() { waiting <- guard.Do(t.Context(), g, sku, increment("n")) }()
		synctest.Wait()
		require.NoError(t, g.Close(t.Context()))
		require.ErrorIs(t, <-waiting, guard.ErrClosed)
	})
}

func TestClose_EndsRunningFunctionsWhenItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		running := make(chan error, 1)
		go func() {
			running <- guard.Do(t.Context(), g, sku, func(ctx context.Context, _ *memory.Tx) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, g.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, 7*time.Second, time.Since(start))
		require.ErrorIs(t, <-running, guard.ErrClosed)
		require.NoError(t, g.Close(t.Context()))
		require.Equal(t, time.Minute+7*time.Second, time.Since(start))
		require.Zero(t, w.locks.Holder(sku))
	})
}

// A graceful stop closes with the context that the signal has ended.
func TestClose_ReleasesAlsoWhenItsContextHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		g := w.processOn(slow(w.locks.NewLocker("a"), time.Second), nil)
		require.NoError(t, guard.Do(ctx, g, sku, increment("n")))
		running := make(chan error, 1)
		go func() {
			running <- guard.Do(ctx, g, "another", func(ctx context.Context, _ *memory.Tx) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				return ctx.Err()
			})
		}()
		synctest.Wait()
		start := time.Now()
		stop()
		require.NoError(t, g.Close(ctx))
		require.Equal(t, 2*time.Second, time.Since(start))
		require.ErrorIs(t, <-running, context.Canceled)
		require.Zero(t, w.locks.Holder(sku))
		require.Zero(t, w.locks.Holder("another"))
	})
}

func TestClose_WaitsForReleasesWithinABound(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for name, ended := range map[string]bool{"open": false, "ended": true} {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			g, err := guard.New(slow(w.locks.NewLocker(name), time.Hour), w.store, nil)
			require.NoError(t, err)
			require.NoError(t, guard.Do(ctx, g, name, increment("n")))
			if ended {
				stop()
			}
			start := time.Now()
			require.Error(t, g.Close(ctx))
			require.Equal(t, 5*time.Second, time.Since(start))
		}
	})
}

func TestRelease_NeverDelaysACallWhoseContextHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.processOn(slow(w.locks.NewLocker("a"), 4*time.Second), &guard.Config{KeepFor: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		untilEnd := func(ctx context.Context, _ *memory.Tx) error {
			<-ctx.Done()
			return ctx.Err()
		}
		start := time.Now()
		require.ErrorIs(t, guard.Do(ctx, g, sku, untilEnd), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.NotZero(t, w.locks.Holder(sku))
		require.NoError(t, g.Close(ctx))
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Zero(t, w.locks.Holder(sku))
	})
}
