package report

import (
	"slices"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/scenario"
	"github.com/fencekit/fencekit/bench/internal/stats"
)

// ran reports whether any contender of a scenario did.
func ran(run *result.Run, s scenario.Scenario) bool {
	return slices.ContainsFunc(run.Cells, func(c result.Cell) bool { return c.Scenario == s.Name })
}

// regimesOf are those that were run, in their usual order.
func regimesOf(run *result.Run) (regimes []result.Regime) {
	for _, c := range run.Cells {
		if !slices.Contains(regimes, c.Regime) {
			regimes = append(regimes, c.Regime)
		}
	}
	place := func(r result.Regime) int {
		if i := slices.Index(scenario.Regimes, r); i >= 0 {
			return i
		}
		return len(scenario.Regimes)
	}
	slices.SortStableFunc(regimes, func(a, b result.Regime) int { return place(a) - place(b) })
	return regimes
}

// spreadOfOthers is how much of the machine others used, in percent.
func spreadOfOthers(run *result.Run) stats.Spread {
	var all []float64
	for _, c := range run.Cells {
		if v, ok := c.Values[result.Others]; ok {
			all = append(all, 100*v)
		}
	}
	return stats.Of(all)
}
