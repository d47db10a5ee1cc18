package turns

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

// noValue is what nobody knows of a lease, and Events that nobody hears.
type noValue struct{}

func (noValue) Granted(fence.Lease)                                  {}
func (noValue) Usable() bool                                         { return true }
func (noValue) GivenUp()                                             {}
func (noValue) Queued(context.Context, string, int)                  {}
func (noValue) Acquiring(context.Context, string, int)               {}
func (noValue) Acquired(context.Context, fence.Grant, time.Duration) {}
func (noValue) LeaseLost(*fence.LeaseLostError, bool)                {}
func (noValue) Released(fence.Grant, error)                          {}

// A waiter's turn comes in the same moment as its context ends. Whichever it
// sees first, the turn must not get lost.
func TestQueue_TurnOfACallThatHasJustLeftIsPassedOn(t *testing.T) {
	t.Parallel()
	all := New(Config[noValue]{Events: noValue{}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	left := 0
	for left < 10 {
		l, err := all.takeTurn(t.Context(), "sku/42", &waiter{})
		require.NoError(t, err)
		w := &waiter{ready: make(chan struct{})}
		l.waiting.append(w)
		all.passTurn(t.Context(), l)
		_, err = all.wait(ctx, l, w)
		if err == nil {
			all.passTurn(t.Context(), l)
		} else {
			require.ErrorIs(t, err, context.Canceled)
			left++
		}
		require.Zero(t, all.Size())
	}
}

// A call whose context ends while another one has its offer waits for that one only: it doesn't go back
// to the queue, where it would wait for its turn.
func TestQueue_CallThatHasLeftDoesNotGoBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := New(Config[noValue]{Events: noValue{}})
		var first, second Held[noValue]
		first.Init(all, []string{"sku/42"}, false)
		second.Init(all, []string{"sku/42"}, false)
		_, err := first.TakeOrOffer(t.Context(), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := second.TakeOrOffer(ctx, "offer")
			left <- err
		}()
		synctest.Wait()
		first.TakeWaiting(1, func(any) bool { return true })
		cancel()
		synctest.Wait()
		require.Empty(t, left)
		first.EndTaken(func(offer any) (any, bool) { return offer, true })
		synctest.Wait()
		require.Len(t, left, 1)
		require.ErrorIs(t, <-left, context.Canceled)
		first.Return(t.Context())
		require.Zero(t, all.Size())
	})
}
