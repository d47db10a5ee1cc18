package guard

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func newTestLines() *lines { return newLines(nil, 0, 0, newMemory(), newReporter(nil, nil)) }

// A waiter's turn comes in the same moment as its context ends. Whichever it
// sees first, the turn must not get lost.
func TestQueue_TurnOfACallThatHasJustLeftIsPassedOn(t *testing.T) {
	t.Parallel()
	all := newTestLines()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for left := 0; left < 10; {
		l, err := all.takeTurn(t.Context(), "sku/42", nil)
		require.NoError(t, err)
		w := l.waiting.join(nil)
		all.passTurn(t.Context(), l)
		if _, err = all.wait(ctx, l, w); err == nil {
			all.passTurn(t.Context(), l)
		} else {
			require.ErrorIs(t, err, context.Canceled)
			left++
		}
		require.Empty(t, all.byResource)
	}
}

// A call whose context ends while another one has its offer waits for that one only: it doesn't go back
// to the queue, where it would wait for its turn.
func TestQueue_CallThatHasLeftDoesNotGoBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newTestLines()
		l, err := all.takeTurn(t.Context(), "sku/42", nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := all.takeTurn(ctx, "sku/42", "offer")
			left <- err
		}()
		synctest.Wait()
		taken := all.takeWaiting(l, 1)
		cancel()
		synctest.Wait()
		require.Empty(t, left)
		all.endTaken(l, taken, true)
		synctest.Wait()
		require.Len(t, left, 1)
		require.ErrorIs(t, <-left, context.Canceled)
		all.passTurn(t.Context(), l)
		require.Empty(t, all.byResource)
	})
}
