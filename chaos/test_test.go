package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

func TestComplaints_SayWhatIsWrongLineByLine(t *testing.T) {
	r := &result.Run{Verdict: result.Violated, Reason: "why", Findings: []check.Finding{
		{Property: "I1", Status: check.Held}, {Property: "I2", Status: check.Irrelevant},
		{Property: "I11", Title: "it met", Status: check.Unchecked, Detail: "never met: x"},
		{Property: "workload", Title: "passes", Status: check.Violated, Detail: "2 of it", Examples: []string{"lot 1\nlot 2", "lot 3"}},
	}}
	require.Equal(t, []string{"I11 (it met): unchecked: never met: x", "workload (passes): violated: 2 of it\n    lot 1\n    lot 2\n    lot 3"}, complaints(r))
	r.Findings = nil
	require.Equal(t, []string{"why"}, complaints(r))
	r.Verdict = result.Pass
	require.Empty(t, complaints(r))
}
