package guard_test

import (
	"bytes"
	"context"
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
// writes when it wakes up is rejected.
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

// If no other holder has claimed, the fence lets it commit.
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
func TestMaxRun_TheNextCallRunsUnderAnotherGrant(t *testing.T) {
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
		require.Equal(t, 2, w.locks.Grants())
	})
}
