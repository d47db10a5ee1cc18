package scenario

import (
	"fmt"
	"time"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// How often polling locks try.
const (
	every1  = time.Millisecond
	every50 = 50 * time.Millisecond
)

// locks are acquisitions and releases without an operation.
func locks() []Scenario {
	return []Scenario{
		uncontended(1, Bound{1, 1.3}), uncontended(64, Bound{1.2, 2}),
		contended(4, Bound{8, 10}), contended(8, Bound{5, 8}), contended(64, Bound{2, 4}),
	}
}

func uncontended(goroutines int, least Bound) Scenario {
	return Scenario{
		Name:       fmt.Sprintf("lock/free/%d", goroutines),
		Title:      fmt.Sprintf("Uncontended acquire and release, %s", counted(goroutines, "goroutine", "goroutines")),
		About:      "Each goroutine acquires and releases a lock that no other uses.",
		Contenders: lockContenders(),
		Baseline:   []string{mutex},
		Goroutines: goroutines,
		Keys:       load.Distinct,
		Locks:      true,
		Metrics:    []result.Metric{result.P50, result.P99, result.ClientCPU, result.EtcdCPU, result.Writes, result.WrittenBytes, result.Allocations},
		Musts: []Must{{
			Row:       fmt.Sprintf("uncontended acquire and release, %s", counted(goroutines, "goroutine", "goroutines")),
			Contender: locker, Metric: result.Rate, Compared: AsRatio, Bounds: here(least.Least, least.Aim),
		}},
	}
}

func contended(waiters int, least Bound) Scenario {
	return Scenario{
		Name:       fmt.Sprintf("lock/contended/%d", waiters),
		Title:      fmt.Sprintf("One contended lock, %d waiters in 4 processes", waiters),
		About:      "Each acquires the lock and releases it at once. The hand-over is the time from the call that releases to the return of the next call that acquires.",
		Contenders: lockContenders(),
		Baseline:   []string{mutex},
		Processes:  4,
		Goroutines: waiters / 4,
		Keys:       load.Hot,
		Locks:      true,
		Metrics:    contendedMetrics,
		Musts: []Must{
			{Row: fmt.Sprintf("contended lock, %d waiters in 4 processes", waiters), Contender: locker, Metric: result.Rate, Compared: AsRatio, Bounds: here(least.Least, least.Aim)},
			{Row: fmt.Sprintf("its hand-over, p99, %d waiters", waiters), Contender: locker, Metric: result.HandOverP99, Compared: AsRatio, AtMost: true, Bounds: here(0.2, 0.1)},
		},
	}
}

var contendedMetrics = []result.Metric{
	result.HandOverP50, result.HandOverP99, result.HandOverMax, result.Mean, result.P70, result.P90, result.P99, result.FairShare, result.ClientCPU, result.EtcdCPU,
}
