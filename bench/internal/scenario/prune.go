package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// prune shows what a prune of a long history costs the load beside it.
func prune() []Scenario {
	const entries = 5_000_000
	const alone, beside = "guard.Do", "guard.Do, beside a prune"
	return []Scenario{{
		Name:  "prune",
		Title: "A prune of 5 million entries beside a full load",
		About: "Each goroutine uses 64 resources of its own in turns, all kept. Both databases have a history of 5 million old entries of 50,000 other resources. In one of them Store.Prune deletes these while the load runs. It takes minutes to fill, and 3 GB.",
		Contenders: []Contender{
			{Name: alone, Open: contender.Do(kept), Fencekit: true, History: entries},
			{Name: beside, Open: contender.Do(kept), Fencekit: true, History: entries, Beside: contender.Pruning},
		},
		Baseline:   []string{alone},
		Goroutines: 8,
		Keys:       load.Spread,
		Seconds:    8,
		Optional:   true,
		Regimes:    []result.Regime{disk, tmpfs},
		Metrics:    append([]result.Metric{result.Pruned}, perOperation...),
		Musts: []Must{{
			Row: "guard.Do beside a prune of 5 million entries, against without", Contender: beside,
			Metric: result.Rate, Compared: AsRatio, Bounds: here(0.85, 1),
		}, {
			Row: "entries a second that the prune deletes meanwhile", Contender: beside,
			Metric: result.Pruned, Compared: Absolute, Bounds: here(1000, 0),
		}},
	}}
}
