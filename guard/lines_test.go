package guard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func newTestLines() *lines { return newLines(nil, 0, 0, newMemory(), newReporter(nil, nil)) }

// A waiter's turn comes in the same moment as its context ends. Whichever it sees first, the turn must not get lost.
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
