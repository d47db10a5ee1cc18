package guard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A waiter's turn comes in the same moment as its context ends. Whichever it
// sees first, the turn must not get lost.
func TestQueue_TurnOfACallThatHasJustLeftIsPassedOn(t *testing.T) {
	t.Parallel()
	k := newKeeper(nil, (*Config)(nil).withDefaults())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	left := 0
	for left < 10 {
		l, err := k.takeTurn(t.Context(), "sku/42", &waiter{})
		require.NoError(t, err)
		w := &waiter{ready: make(chan struct{})}
		l.waiting.append(w)
		k.passTurn(t.Context(), l)
		_, err = k.wait(ctx, l, w)
		if err == nil {
			k.passTurn(t.Context(), l)
		} else {
			require.ErrorIs(t, err, context.Canceled)
			left++
		}
		require.Empty(t, k.lines)
	}
}
