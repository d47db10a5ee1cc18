package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// anchors shows what anchoring costs the load beside it.
func anchors() []Scenario {
	const entries = 1_000_000
	const alone, beside = "guard.Do", "guard.Do, beside anchoring"
	return []Scenario{{
		Name:  "anchor",
		Title: "A history of 10,000 resources anchored each second beside a full load",
		About: "Each goroutine uses 64 resources of its own in turns, all kept. Both databases have a history of 1 million entries of 10,000 other resources. In one of them the heads of all resources are recorded in a signed log each second, 60 times as often as is recommended.",
		Contenders: []Contender{
			{Name: alone, Open: contender.Do(kept), Fencekit: true, History: entries},
			{Name: beside, Open: contender.Do(kept), Fencekit: true, History: entries, Beside: contender.Anchoring},
		},
		Baseline:   []string{alone},
		Goroutines: 8,
		Keys:       load.Spread,
		Seconds:    8,
		Optional:   true,
		Regimes:    []result.Regime{disk, tmpfs},
		Metrics:    append([]result.Metric{result.Anchored}, perOperation...),
		Musts: []Must{{
			Row: "guard.Do beside an anchor each second, against without", Contender: beside,
			Metric: result.Rate, Compared: AsRatio, Bounds: here(0.85, 1),
		}, {
			Row: "runs of anchoring a second meanwhile", Contender: beside,
			Metric: result.Anchored, Compared: Absolute,
		}},
	}}
}
