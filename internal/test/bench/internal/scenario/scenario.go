// Package scenario says what the benchmark compares, and how.
package scenario

import (
	"fmt"

	"github.com/fencekit/fencekit/internal/test/bench/internal/contender"
	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
)

// Scenario is one comparison.
type Scenario struct {
	Name  string // what RUN matches
	Title string
	About string
	// Contenders run in each round, in rotated order.
	Contenders []contender.Contender
	// Baseline is what the others are compared with. Of several it is the one with the highest
	// median rate: the baseline at its best.
	Baseline []string

	Processes   int // 0: 1
	Goroutines  int // of each process
	Connections int // of each process; 0: as many as goroutines
	Keys        load.Keys
	Width       int   // keys of an operation; 0: 1
	Rows        int   // of the table that are used; 0: all
	Limit       int64 // operations of each process, after which it is done

	Seconds float64 // the measured time of a cell, if more than asked for
	Rounds  int     // at most; 0: as asked for
	// Reads: operations write nothing.
	Reads bool
	// Metrics are shown beside the rate and its ratio.
	Metrics []result.Metric
	// Ratios are shown beside those of rates to the baseline.
	Ratios []Ratio
}

// Ratio compares a metric of a contender with that of another one.
type Ratio struct {
	Contender, Against string
	Metric             result.Metric
}

// Find returns the scenario and the contender of a worker.
func Find(spec load.Spec) (load.Open, error) {
	for _, s := range All() {
		for _, c := range s.Contenders {
			if s.Name == spec.Scenario && c.Name == spec.Contender {
				return c.Open, nil
			}
		}
	}
	return nil, fmt.Errorf("scenario: no contender %q in %q", spec.Contender, spec.Scenario)
}
