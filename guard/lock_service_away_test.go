package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

// silentLocker is a lock service without an answer: it says so after patience.
type silentLocker struct {
	fence.Locker
	patience time.Duration
	reason   fence.UnavailableReason
	asked    int
}

func (l *silentLocker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	return nil, l.fail(ctx, resource)
}

func (l *silentLocker) TryAcquireAll(ctx context.Context, resources ...string) ([]fence.Lease, error) {
	return nil, l.fail(ctx, resources[0])
}

func (l *silentLocker) fail(ctx context.Context, resource string) error {
	l.asked++
	select {
	case <-time.After(l.patience):
		return &fence.UnavailableError{Op: "acquire " + resource, Reason: l.reason}
	case <-ctx.Done():
		return &fence.UnavailableError{Op: "acquire " + resource, Reason: l.reason, Err: ctx.Err()}
	}
}

// callAll makes one call for each list of resources, in order, and returns after how long each
// failed.
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

// Calls that wait in turn for a lock service without an answer would each wait for it as long
// as the one before.
func TestQueue_CallsFailTogetherWhenTheLockServiceDoesNotAnswer(t *testing.T) {
	const patience = 5 * time.Second
	one, two := []string{sku}, []string{sku, "sku/43"}
	for name, calls := range map[string][][]string{
		"one resource":      {one, one, one, one},
		"several resources": {two, one, two, {"sku/43"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				locker := &silentLocker{Locker: w.locks.NewLocker("a"), patience: patience, reason: fence.Unreachable}
				g := w.processOn(locker, nil)
				for _, took := range callAll(t, g, calls...) {
					require.Equal(t, patience, took)
				}
				require.Equal(t, 1, locker.asked)
				require.Zero(t, guard.Lines(g))
			})
		})
	}
}

// The end of a call's own context, and a lost queue position, say nothing about the calls behind it.
func TestQueue_CallsGoOnAfterAFailureThatIsNotTheirs(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			locker := &silentLocker{Locker: w.locks.NewLocker("a"), patience: 5 * time.Second, reason: fence.Unreachable}
			g := w.processOn(locker, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go func() { _ = guard.Do(ctx, g, sku, set("k", "v")) }()
			synctest.Wait()
			require.Equal(t, []time.Duration{6 * time.Second}, callAll(t, g, []string{sku}))
		})
	})
	t.Run("queue position", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			locker := &silentLocker{Locker: w.locks.NewLocker("a"), patience: time.Second, reason: fence.QueueLost}
			g := w.processOn(locker, nil)
			require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, callAll(t, g, []string{sku}, []string{sku}))
		})
	})
}
