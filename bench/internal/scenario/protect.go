package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// protect shows what the triggers of a protected table cost guarded writes.
func protect() []Scenario {
	const onProtected, batchOnProtected = "guard.Do, protected", "postgres.Batch, protected"
	return []Scenario{{
		Name:  "protect/8",
		Title: "Guarded writes on a protected table, 8 connections",
		About: "Each goroutine reads and writes a row of its own, as in do/8, on a table that postgres.Protect protects in enforce mode, and on one that it doesn't.",
		Contenders: []Contender{
			{Name: guardDo, Open: contender.Do(kept), Fencekit: true},
			{Name: onProtected, Open: contender.Protected(contender.Do(kept)), Fencekit: true},
			{Name: batchAlone, Open: contender.BatchAlone(kept), Fencekit: true},
			{Name: batchOnProtected, Open: contender.Protected(contender.BatchAlone(kept)), Fencekit: true},
		},
		Baseline:   []string{guardDo},
		Goroutines: 8,
		Keys:       load.Distinct,
		Metrics:    perOperation,
		Musts: []Must{
			{Row: "guard.Do on a protected table, against an unprotected one", Contender: onProtected, Metric: result.Rate, Compared: AsRatio, Bounds: everywhere(0.85, 0.95)},
			{Row: "batch form on a protected table, against an unprotected one", Contender: batchOnProtected, Baseline: []string{batchAlone}, Metric: result.Rate, Compared: AsRatio, Bounds: everywhere(0.85, 0.95)},
		},
	}}
}

// everywhere are bounds in all regimes.
func everywhere(least, aim float64) map[result.Regime]Bound {
	return map[result.Regime]Bound{disk: {least, aim}, diskSlow: {least, aim}, tmpfs: {least, aim}, tmpfsSlow: {least, aim}}
}
