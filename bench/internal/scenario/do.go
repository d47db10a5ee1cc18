package scenario

import (
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// perOperation is what an operation costs.
var perOperation = []result.Metric{
	result.P50, result.P99, result.ClientCPU, result.PostgresCPU, result.WAL, result.Writes, result.WrittenBytes, result.Allocations, result.AllocatedB,
}

// do are calls on resources that the process keeps, each goroutine its own.
func do() []Scenario {
	return []Scenario{doDistinct(1), allocations(), doDistinct(8), doGroups()}
}

func doDistinct(connections int) Scenario {
	s := Scenario{
		Name:  fmt.Sprintf("do/%d", connections),
		Title: "guard.Do on distinct resources, kept, " + counted(connections, "connection", "connections"),
		About: "Each goroutine reads and writes a row of its own, over a connection of its own; the process owns the resource already. What compares, counts and records a token in two tables, and no more, is the bound of what keeps a fence and a history. One atomic UPDATE does without reading and deciding, which not every operation can.",
		Contenders: []Contender{
			{Name: bare, Open: contender.Bare, Unsafe: noGuard},
			{Name: guardDo, Open: contender.Do(kept), Fencekit: true},
			{Name: batchAlone, Open: contender.BatchAlone(kept), Fencekit: true},
			{Name: ownFence, Open: contender.OwnFence, Unsafe: noGuarantee},
			{Name: atomic, Open: contender.AtomicUpdate},
		},
		Baseline:   []string{bare},
		Goroutines: connections,
		Keys:       load.Distinct,
		Metrics:    perOperation,
	}
	if connections == 1 {
		s.Musts = allocated("allocations of guard.Do beside those of the bare transaction, with a context that can end")
		return s
	}
	s.Musts = []Must{
		{Row: "guard.Do, distinct keys, 8 connections, kept", Contender: guardDo, Metric: result.Rate, Compared: AsRatio, Bounds: map[result.Regime]Bound{
			disk: {0.62, 0.85}, diskSlow: {0.95, 1.15}, tmpfs: {0.45, 0.6}, tmpfsSlow: {0.9, 1.15},
		}},
		{Row: "batch form, one operation a transaction, 8 connections", Contender: batchAlone, Metric: result.Rate, Compared: AsRatio, Bounds: map[result.Regime]Bound{
			disk: {0.9, 1.2}, diskSlow: {1.3, 1.6},
		}},
	}
	return s
}

// doGroups has more goroutines than connections are good for.
func doGroups() Scenario {
	best, names := atBest(Contender{Name: bare, Open: contender.Bare, Unsafe: noGuard}, 4, 8, 16, 32, 64)
	return Scenario{
		Name:  "groups",
		Title: "Distinct resources, kept, 64 goroutines",
		About: "As above, with 64 goroutines. Batches share transactions; the bare transaction is given several numbers of connections, and compared at its best.",
		Contenders: slices.Concat(best, []Contender{
			{Name: guardDo, Open: contender.Do(kept), Fencekit: true, Connections: 8},
			{Name: batchForm, Open: contender.Batch(kept), Fencekit: true, Connections: 8},
			{Name: atomic, Open: contender.AtomicUpdate, Connections: 8},
		}),
		Baseline:   names,
		Goroutines: 64,
		Keys:       load.Distinct,
		Metrics:    perOperation,
		Musts: []Must{
			{Row: "batch form, distinct keys, 64 goroutines, against bare at its best number of connections", Contender: batchForm, Metric: result.Rate, Compared: AsRatio, Bounds: here(1.5, 4)},
		},
	}
}

// allocations has operations whose context never ends, for which contexts cost least.
func allocations() Scenario {
	s := doDistinct(1)
	s.Name, s.Title = "do/1/background", "The same under context.Background()"
	s.About = "A context that can end, as a request's, costs allocations wherever something waits for its end. This one can't."
	s.Background, s.Rounds, s.Regimes = true, 3, []result.Regime{tmpfs}
	s.Musts = allocated("allocations of guard.Do beside those of the bare transaction, under context.Background()")
	return s
}

func allocated(row string) []Must {
	return []Must{
		{Row: row, Contender: guardDo, Metric: result.Allocations, Compared: AsDifference, AtMost: true, Bounds: here(60, 30)},
		{Row: "their bytes", Contender: guardDo, Metric: result.AllocatedB, Compared: AsDifference, AtMost: true, Bounds: here(5<<10, 3<<10)},
	}
}
