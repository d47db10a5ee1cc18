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

func ratio(against string, m result.Metric) scenario.Ratio {
	return scenario.Ratio{Contender: "ours", Against: against, Metric: m}
}

// example is a scenario with a peer at two numbers of connections, and a run of it.
func example() (scenario.Scenario, *result.Run) {
	s := scenario.Scenario{
		Name: "example", Title: "An <example>", Baseline: []string{"peer, 1", "peer, 8"},
		Contenders: []contender.Contender{{Name: "peer, 1"}, {Name: "peer, 8", Unsafe: "loses updates"}, {Name: "ours"}},
		Metrics:    []result.Metric{result.P99},
		Ratios:     []scenario.Ratio{ratio("peer, 1", result.Rate), ratio("peer, 8", result.P99), ratio("not run", result.Rate)},
	}
	run := &result.Run{Rounds: 3, Seconds: 1, Machine: "a machine", Commit: "abc"}
	for round, rates := range [][3]float64{{50, 100, 60}, {60, 200, 140}, {10, 50, 40}} {
		for i, c := range s.Contenders {
			run.Cells = append(run.Cells, result.Cell{Scenario: s.Name, Contender: c.Name, Regime: disk, Round: round,
				Values: map[result.Metric]float64{result.Rate: rates[i], result.P99: float64(100 + 20*i)}})
		}
	}
	run.Cells = append(run.Cells, result.Cell{Scenario: s.Name, Contender: "ours", Regime: slow, Err: "it failed & ended"})
	return s, run
}

// Ratios are taken in a round, against the baseline that has the highest median.
func TestCompare_WithTheBaselineAtItsBest(t *testing.T) {
	s, run := example()
	fast, slowly := view{run, s, disk}, view{run, s, slow}
	require.Equal(t, "peer, 8", fast.best(s.Baseline))
	f := fast.part().Rows[2].Ratio
	require.Equal(t, "peer, 8", f.Against)
	require.InDelta(t, 0.7, f.Median, 1e-9)
	require.InDelta(t, 0.6, f.Min, 1e-9)
	require.InDelta(t, 0.8, f.Max, 1e-9)
	require.InDelta(t, 140.0/120, fast.compare(s.Ratios[1]).Median, 1e-9)
	require.Zero(t, fast.compare(s.Ratios[2]).Count)
	require.Zero(t, slowly.compare(s.Ratios[0]).Count, "a cell that failed has no values")
}

func TestMarkdown_HasEveryRow(t *testing.T) {
	s, run := example()
	var text strings.Builder
	require.NoError(t, Markdown(&text, run, []scenario.Scenario{s, {Name: "not run", Title: "Not run"}}))
	require.Contains(t, text.String(), "| An <example>: ours, rate | peer, 1 | 2.33 [1.20..4.00] | - |")
	require.Contains(t, text.String(), "| An <example>: ours, p99 | peer, 8 | 1.17 [1.17..1.17] | - |")
	require.Contains(t, text.String(), "| An <example>: ours, rate | not run | - | - |")
	require.Contains(t, text.String(), "× is against whichever has the highest median rate of: peer, 1; peer, 8.")
	require.Contains(t, text.String(), "| ours | 60.0/s, × 0.70 [0.60..0.80] | - |")
	require.Contains(t, text.String(), "| disk | p99, µs |\n|---|---|\n| peer, 1 | 100 |\n| peer, 8 | 120 |\n| ours | 140 |\n")
	require.Contains(t, text.String(), "a machine: 3 rounds of 1 s; ; commit abc.")
	require.NotContains(t, text.String(), "Not run")
	require.Contains(t, text.String(), "\nFailed: example, ours, disk +0.5 ms: it failed & ended\n")
}

// A rate of a few operations is noise: it is shown with their number, and without a ratio.
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
		var text strings.Builder
		require.NoError(t, Markdown(&text, run, []scenario.Scenario{s}))
		require.Contains(t, text.String(), "(19 operations a round)")
		require.NotContains(t, text.String(), "(20 operations")
		require.Contains(t, text.String(), ", × withheld (fewer than 20 operations in a round) |")
		require.NotContains(t, text.String(), "0.70 [0.60..0.80]")
		require.Contains(t, text.String(), "1.17 [1.17..1.17]", "what isn't a rate is shown")
	}
}
