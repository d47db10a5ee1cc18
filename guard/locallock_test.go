package guard

import (
	"context"
	"testing"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/stretchr/testify/require"
)

func newTestLines() *localLocks {
	return newLocalLocks(nil, 0, 0, newSightings(), newReporter(nil, nil))
}

// A waiter's turn comes in the same moment as its context ends. Whichever it sees first, the turn must not get lost.
func TestQueue_TurnOfACallThatHasJustLeftIsPassedOn(t *testing.T) {
	t.Parallel()
	all := newTestLines()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for left := 0; left < 10; {
		l, err := all.lock(t.Context(), "sku/42", nil)
		require.NoError(t, err)
		w := l.waiting.join(nil)
		all.unlock(t.Context(), l)
		if _, err = all.wait(ctx, l, w); err == nil {
			all.unlock(t.Context(), l)
		} else {
			require.ErrorIs(t, err, context.Canceled)
			left++
		}
		require.Empty(t, all.byResource)
	}
}

// A transaction that made its own claim, and took no effect, has ruled out no COMMIT of before.
func TestMemory_ADoubtOutlastsALaterOneThatIsSettled(t *testing.T) {
	m := newSightings()
	doubt := func(token fence.Token) *UnknownOutcomeError {
		claim := storage.Claim{Grant: fence.Grant{Resource: "r", Epoch: 1, Token: token}}
		err := &UnknownOutcomeError{inDoubt: storage.InDoubt{Claims: []storage.Claim{claim}}}
		m.addDoubt(err)
		return err
	}
	lease := doubt(5).inDoubt.Claims[0].Grant
	m.removeDoubt(doubt(6))
	require.True(t, m.inDoubt(lease))
	m.note(&grantState{claim: storage.Claim{Grant: fence.Grant{Resource: "r", Epoch: 1, Token: 7}}, claimed: true})
	require.False(t, m.inDoubt(lease))
	require.Empty(t, m.doubts)
}
