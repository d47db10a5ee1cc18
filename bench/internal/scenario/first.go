package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// first are calls on resources that no process has used before.
func first() []Scenario {
	return []Scenario{{
		Name:  "first",
		Title: "First use of 10,000 resources, 8 goroutines",
		About: "Each operation is the first on its resource, which it acquires, claims and keeps. A cell ends with the 10,000th, or after 10 s.",
		Contenders: []Contender{
			{Name: bare, Open: contender.Bare, Unsafe: noGuard},
			{Name: guardDo, Open: contender.Do(kept), Fencekit: true},
		},
		Baseline:   []string{bare},
		Goroutines: 8,
		Keys:       load.Fresh,
		Limit:      10000,
		Seconds:    10,
		Rounds:     5,
		Metrics:    append([]result.Metric{result.EtcdCPU}, perOperation...),
		Musts: []Must{{
			Row:       "first use (acquire, claim, run) of 10,000 resources by 8 goroutines, against a bare transaction each",
			Contender: guardDo, Metric: result.Rate, Compared: AsRatio, Bounds: here(0.25, 0.4),
		}},
	}}
}
