// Package scenario says what the benchmark compares, and how.
package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
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
	Limit       int64 // operations of each process, after which it is done

	Regimes []result.Regime // those that it is run in; none: all
	Seconds float64         // the measured time of a cell, if more than asked for
	Rounds  int             // at most; 0: as asked for
	// Optional scenarios run only when RUN matches them.
	Optional bool
	// Locks: operations only acquire and release.
	Locks bool
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

// addedLatency is what a round trip takes longer where latency is added.
const addedLatency = 500 * time.Microsecond

// The regimes.
var (
	disk      = result.Regime{Place: result.Disk}
	diskSlow  = result.Regime{Place: result.Disk, Latency: addedLatency}
	tmpfs     = result.Regime{Place: result.Tmpfs}
	tmpfsSlow = result.Regime{Place: result.Tmpfs, Latency: addedLatency}
)

// Regimes are all of them.
var Regimes = []result.Regime{disk, diskSlow, tmpfs, tmpfsSlow}

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

// Runs reports whether the scenario is run in a regime.
func (s *Scenario) Runs(r result.Regime) bool {
	return len(s.Regimes) == 0 || slices.Contains(s.Regimes, r)
}
