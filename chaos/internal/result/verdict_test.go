package result

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

func TestVerdictOf_GivesItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		findings []check.Finding
		verdict  Verdict
		reason   string
	}{
		{nil, Inconclusive, "no property was checked"},
		{[]check.Finding{{Property: "I1", Status: check.Irrelevant}}, Inconclusive, "no property was checked"},
		{[]check.Finding{{Property: "I1", Status: check.Held}}, Pass, "1 property held"},
		{[]check.Finding{{Property: "I1", Status: check.Held}, {Property: "I2", Status: check.Held}, {Property: "I3", Status: check.Irrelevant}}, Pass, "2 properties held"},
		{[]check.Finding{{Property: "I1", Status: check.Held}, {Property: "I7", Status: check.Unchecked, Detail: "the watch has a gap"}}, Inconclusive, "I7: the watch has a gap"},
		{[]check.Finding{{Property: "I1", Status: check.Held}, {Property: "I11", Status: check.Unchecked, Detail: "no lease was lost"}}, Inconclusive, "I11: no lease was lost"},
		{[]check.Finding{{Property: "I7", Status: check.Unchecked, Detail: "a gap"}, {Property: "I2", Status: check.Violated, Detail: "3 oversold"}, {Property: "I3", Status: check.Violated, Detail: "1 twice"}}, Violated, "I2: 3 oversold; I3: 1 twice"},
		{[]check.Finding{{Property: "I1", Status: "fine"}}, Inconclusive, "I1: "}, // an unknown status is no pass
	} {
		verdict, reason := verdictOf(c.findings)
		require.Equal(t, c.verdict, verdict, "%+v", c.findings)
		require.Equal(t, c.reason, reason)
	}
}
