package result

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCompare_PutsSuitesSideBySide(t *testing.T) {
	t.Parallel()
	slow := fencedOK
	slow.Latency = Quantiles{10, 3 * time.Millisecond, 4 * time.Millisecond, 5 * time.Millisecond, 90 * time.Millisecond}
	slower := fencedOK
	slower.Latency = Quantiles{5, 2 * time.Millisecond, 4 * time.Millisecond, 7 * time.Millisecond, 8 * time.Millisecond}
	slower.Counts = Counts{Operations: 5, OK: 3, Failed: 1, Unknown: 1, Rejections: 2, Faults: 3, Oversold: 4, Lost: 5}
	a := &Suite{Verdict: Pass, Reason: "good", Runs: []Run{slow, slower, redlockRed, fencedCalm}}
	b := &Suite{Verdict: Violated, Reason: "bad", Runs: []Run{redlockOff, fencedBad, {Scenario: "kill", Group: "a", Faults: true, Verdict: Pass}}}
	got := Compare(a, b)
	require.Equal(t, [2]Verdict{Pass, Violated}, got.Verdicts)
	require.Equal(t, [2]string{"good", "bad"}, got.Reasons)
	require.Equal(t, []ComparisonRow{
		{"kill", "a", true, [2]Totals{{}, {Runs: 1}}},
		{"stop", Fenced, true, [2]Totals{
			{Runs: 2, Counts: Counts{Operations: 105, OK: 3, Failed: 1, Unknown: 1, Rejections: 3, Faults: 5, Oversold: 4, Lost: 5},
				Latency: Quantiles{15, 3 * time.Millisecond, 4 * time.Millisecond, 7 * time.Millisecond, 90 * time.Millisecond}},
			{Runs: 1, Violated: 1}}},
		{"stop", Fenced, false, [2]Totals{{Runs: 1}, {}}},
		{"stop", "redlock", true, [2]Totals{{Runs: 1, Violated: 1}, {}}},
		{"stop", "redlock", false, [2]Totals{{}, {Runs: 1}}},
	}, got.Rows)
}

func TestCompare_FencedFirstAndFaultsFirst(t *testing.T) {
	t.Parallel()
	suite := &Suite{}
	for i := range 10 {
		for _, group := range []string{"a", Fenced, "z"} {
			suite.Runs = append(suite.Runs, Run{Scenario: string(rune('a' + i)), Group: group}, Run{Scenario: string(rune('a' + i)), Group: group, Faults: true})
		}
	}
	rows := Compare(suite, &Suite{}).Rows
	require.Len(t, rows, 60)
	for i, row := range rows {
		require.Equal(t, string(rune('a'+i/6)), row.Scenario)
		require.Equal(t, []string{Fenced, "a", "z"}[i%6/2], row.Group)
		require.Equal(t, i%2 == 0, row.Faults)
	}
}
