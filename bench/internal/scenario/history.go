package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// history shows whether a long history slows down a guarded operation.
func history() []Scenario {
	const empty, full = "guard.Do, empty history", "guard.Do, 10 million entries"
	return []Scenario{{
		Name:  "history",
		Title: "A history of 10 million entries",
		About: "Each goroutine uses 64 resources of its own in turns, all kept. One database has a history of 10 million entries of 100,000 other resources. It takes minutes to fill, and 5 GB.",
		Contenders: []Contender{
			{Name: empty, Open: contender.Do(kept), Fencekit: true},
			{Name: full, Open: contender.Do(kept), Fencekit: true, History: 10_000_000},
		},
		Baseline:   []string{empty},
		Goroutines: 8,
		Keys:       load.Spread,
		Seconds:    8,
		Optional:   true,
		Regimes:    []result.Regime{disk, tmpfs},
		Metrics:    perOperation,
		Musts: []Must{{
			Row: "guard.Do with a history of 10 million entries, against an empty one", Contender: full,
			Metric: result.Rate, Compared: AsRatio, Bounds: here(0.9, 1),
		}},
	}}
}
