package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/model"
)

// upholds requires that each of the variants, which leave out something that upholds an
// invariant, is broken within bounds in which the protocol holds.
func upholds(t *testing.T, ids ...string) {
	t.Helper()
	broken := map[string]outcome{}
	for _, o := range explored() {
		if o.Unbroken != nil && o.Violation != model.Holds {
			broken[o.ID] = o
		}
	}
	for _, id := range ids {
		o, ok := broken[id]
		require.True(t, ok, "%s is not broken", id)
		t.Logf("%s, %s: %v\n%s", id, o.Text, o.Violation, model.Format(o.Schedule))
		result, err := o.Unbroken.Explore()
		require.NoError(t, err, id)
		require.Equal(t, model.Holds, result.Violation, id)
	}
}

func TestGroups_AnswerAfterTheirOutcome(t *testing.T) { upholds(t, "B20", "B43") }

func TestGroups_SealAllTheirResourcesOrNone(t *testing.T) {
	upholds(t, "B44", "B44d", "B45", "B46")
}

func TestPositions_AreClaimedAgainAfterAVoid(t *testing.T) { upholds(t, "B47") }

func TestClaims_HaveAVerdictEach(t *testing.T) { upholds(t, "B48", "B49", "B49b") }

func TestReads_AreOfThePresentState(t *testing.T) {
	upholds(t, "B50", "B51", "B52", "B53", "B54", "B55", "B56", "B57")
}

func TestGroups_WaitForNothingWhileTheyForm(t *testing.T) { upholds(t, "AB10", "AB11") }

func TestLocks_AreTakenInOrderInOneTxn(t *testing.T) { upholds(t, "AB6", "AB7", "AB8", "AB9") }

func TestRows_AreLockedInOneOrder(t *testing.T) { upholds(t, "RB1", "RB2", "RB3", "RB4") }
