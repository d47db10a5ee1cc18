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
		Name: "example", Title: "An <example>", Baseline: []string{"peer, 1", "peer, 8"},
		Contenders: []contender.Contender{{Name: "peer, 1"}, {Name: "peer, 8", Unsafe: "loses updates"}, {Name: "ours", Fencekit: true}},
		Metrics:    []result.Metric{result.P99},
		Musts: []scenario.Must{
			{Row: "rate", Contender: "ours", Metric: result.Rate, Compared: scenario.AsRatio, Bounds: map[result.Regime]scenario.Bound{disk: {Least: 0.5, Aim: 0.9}}},
			{Row: "p99", Contender: "ours", Metric: result.P99, Compared: scenario.AsDifference, AtMost: true, Bounds: map[result.Regime]scenario.Bound{disk: {Least: 10}}},
			{Row: "share", Contender: "ours", Metric: result.FairShare, Compared: scenario.Absolute},
			{Row: "not built", Contender: "not built yet", Metric: result.Rate, Compared: scenario.AsRatio, Bounds: map[result.Regime]scenario.Bound{disk: {Least: 2}}},
		},
	}
	run := &result.Run{Rounds: 3, Seconds: 1, Machine: "a machine", Commit: "abc"}
	for round, rates := range [][3]float64{{50, 100, 60}, {60, 200, 140}, {10, 50, 40}} {
		for i, c := range s.Contenders {
			run.Cells = append(run.Cells, result.Cell{Scenario: s.Name, Contender: c.Name, Regime: disk, Round: round,
				Values: map[result.Metric]float64{result.Rate: rates[i], result.P99: float64(100 + 20*i), result.Others: 0.25}})
		}
	}
	run.Cells = append(run.Cells, result.Cell{Scenario: s.Name, Contender: "ours", Regime: slow, Err: "it failed & ended"})
	return s, run
}

// Ratios are taken in a round, against the baseline that has the highest median.
func TestCompare_WithTheBaselineAtItsBest(t *testing.T) {
	s, run := example()
	fast, slowly := view{run, s, disk}, view{run, s, slow}
	f := fast.compare(s.Musts[0])
	require.Equal(t, "peer, 8", f.Baseline)
	require.InDelta(t, 0.7, f.Median, 1e-9)
	require.InDelta(t, 0.6, f.Min, 1e-9)
	require.InDelta(t, 0.8, f.Max, 1e-9)
	require.Equal(t, reached, f.Verdict)

	p99 := fast.compare(s.Musts[1])
	require.InDelta(t, 20, p99.Median, 1e-9)
	require.Equal(t, missed, p99.Verdict)

	require.Equal(t, notMeasured, fast.compare(s.Musts[2]).Verdict)
	require.Equal(t, notMeasured, fast.compare(s.Musts[3]).Verdict)
	require.Equal(t, notMeasured, slowly.compare(s.Musts[0]).Verdict, "a cell that failed has no values")
}

func TestJudge(t *testing.T) {
	for value, want := range map[float64]verdict{1.9: missed, 2: reached, 4: aimReached} {
		require.Equal(t, want, judge(value, scenario.Bound{Least: 2, Aim: 4}, false))
	}
	for value, want := range map[float64]verdict{4.1: missed, 4: reached, 2: aimReached} {
		require.Equal(t, want, judge(value, scenario.Bound{Least: 4, Aim: 2}, true))
	}
}

func TestMarkdown_HasEveryRowAndMarksWhatMisses(t *testing.T) {
	s, run := example()
	var text strings.Builder
	require.NoError(t, Markdown(&text, run, []scenario.Scenario{s, {Name: "not run", Title: "Not run"}}))
	require.Contains(t, text.String(), "| rate | at least 0.50, aim 0.90 (disk) | ✓ 0.70 [0.60..0.80] | - |")
	require.Contains(t, text.String(), "| p99 | at most 10.0 (disk) | ✗ 20.0 [20.0..20.0] | - |")
	require.Contains(t, text.String(), "| not built | at least 2.00 (disk) | - | - |")
	require.Contains(t, text.String(), "× is against whichever has the highest median rate of: peer, 1; peer, 8.")
	require.Contains(t, text.String(), "| ours | 60.0/s, × 0.70 [0.60..0.80] | - |")
	require.Contains(t, text.String(), "Others used 25.0")
	require.Contains(t, text.String(), "Above 20% rates and ratios are rough")
	require.NotContains(t, text.String(), "Not run")
}

// A rate of a few operations is noise: it is shown with their number, and without a ratio, a
// verdict or a word on who is faster.
func TestReport_WithholdsRatiosOfFewOperations(t *testing.T) {
	s, run := example()
	for _, few := range []string{"ours", "peer, 8"} {
		for _, c := range run.Cells {
			if c.Values != nil {
				c.Values[result.Operations] = 20
				if c.Contender == few {
					c.Values[result.Operations] = 19
				}
			}
		}
		var text, page strings.Builder
		require.NoError(t, Markdown(&text, run, []scenario.Scenario{s}))
		require.Contains(t, text.String(), "(19 operations a round)")
		require.NotContains(t, text.String(), "(20 operations")
		require.Contains(t, text.String(), "| rate | at least 0.50, aim 0.90 (disk) | withheld (fewer than 20 operations in a round) | - |")
		require.NotContains(t, text.String(), "0.70 [0.60..0.80]")
		require.Contains(t, text.String(), "✗ 20.0 [20.0..20.0]", "what isn't a rate is shown")
		require.NoError(t, HTML(&page, run, []scenario.Scenario{s}))
		require.NotContains(t, page.String(), "peer, 8 (1.43 ×)")
		require.NotContains(t, page.String(), "0.70")
	}
}
