package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/scenario"
)

var (
	disk = result.Regime{Place: result.Disk}
	slow = result.Regime{Place: result.Disk, Latency: 500 * time.Microsecond}
)

// example is a scenario with a peer at two numbers of connections, and a run of it.
func example() (scenario.Scenario, *result.Run) {
	s := scenario.Scenario{
		Name: "example", Title: "An example", Baseline: []string{"peer, 1", "peer, 8"},
		Contenders: []contender.Contender{{Name: "peer, 1"}, {Name: "peer, 8", Unsafe: "loses updates"}, {Name: "ours"}},
		Metrics:    []result.Metric{result.P99},
		Comparisons: []scenario.Comparison{
			{Row: "rate", Contender: "ours", Metric: result.Rate, Compared: scenario.AsRatio},
			{Row: "p99", Contender: "ours", Metric: result.P99, Compared: scenario.AsDifference},
			{Row: "share", Contender: "ours", Metric: result.FairShare, Compared: scenario.Absolute},
		},
	}
	run := &result.Run{Rounds: 3, Seconds: 1, Machine: "a machine", Commit: "abc"}
	for round, rates := range [][3]float64{{50, 100, 60}, {60, 200, 140}, {10, 50, 40}} {
		for i, c := range s.Contenders {
			run.Cells = append(run.Cells, result.Cell{Scenario: s.Name, Contender: c.Name, Regime: disk, Round: round,
				Values: map[result.Metric]float64{result.Rate: rates[i], result.P99: float64(100 + 20*i), result.Others: 0.25}})
		}
	}
	run.Cells = append(run.Cells, result.Cell{Scenario: s.Name, Contender: "ours", Regime: slow, Err: "it failed"})
	return s, run
}

// Ratios are taken in a round, against the baseline that has the highest median.
func TestMarkdown_ComparesWithTheBaselineAtItsBest(t *testing.T) {
	s, run := example()
	var text strings.Builder
	require.NoError(t, Markdown(&text, run, []scenario.Scenario{s, {Name: "not run", Title: "Not run"}}))
	for _, part := range []string{
		"| rate | 0.70 [0.60..0.80] | - |", "| p99 | 20.0 [20.0..20.0] | - |", "| share | - | - |",
		"× is against whichever has the highest median rate of: peer, 1; peer, 8.",
		"| peer, 8 (loses updates) | 100 [50.0..200] | baseline | 120 |", "| ours | 60.0 [40.0..140] | 0.70 [0.60..0.80] | 140 |",
		"- example, ours, disk +0.5 ms: it failed", "Others used 25.0", "Above 20% rates and ratios are rough",
	} {
		require.Contains(t, text.String(), part)
	}
	require.NotContains(t, text.String(), "Not run")
}

// A rate of a few operations is noise: it is shown with their number, and without a ratio.
func TestMarkdown_WithholdsRatiosOfFewOperations(t *testing.T) {
	for _, few := range []string{"ours", "peer, 8"} {
		s, run := example()
		for _, c := range run.Cells {
			if c.Values != nil {
				c.Values[result.Operations] = 20
				if c.Contender == few {
					c.Values[result.Operations] = 19
				}
			}
		}
		var text strings.Builder
		require.NoError(t, Markdown(&text, run, []scenario.Scenario{s}))
		require.Contains(t, text.String(), "(19 operations a round)")
		require.NotContains(t, text.String(), "(20 operations")
		require.Contains(t, text.String(), "| rate | withheld (fewer than 20 operations in a round) | - |")
		require.NotContains(t, text.String(), "0.70 [0.60..0.80]")
		require.Contains(t, text.String(), "| p99 | 20.0 [20.0..20.0]", "what isn't a rate is shown")
	}
}
