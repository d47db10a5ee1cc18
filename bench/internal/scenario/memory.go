package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// memory is what it costs to hold many resources and do nothing.
func memory() []Scenario {
	s := Scenario{
		Name:  "memory",
		Title: "10,000 resources held",
		About: "One process acquires 10,000 and then does nothing. Memory and goroutines are counted from when each of its goroutines has acquired one, after a garbage collection; keep-alives for 30 s.",
		Contenders: []Contender{
			{Name: guardDo, Open: contender.HeldByGuard, Fencekit: true},
			{Name: locker, Open: contender.HeldByLocker, Fencekit: true},
			{Name: mutex, Open: contender.HeldByMutex},
		},
		Goroutines:  32,
		Keys:        load.Fresh,
		Connections: 8,
		Count:       10000,
		Rounds:      3,
		Regimes:     []result.Regime{tmpfs},
		Metrics:     []result.Metric{result.BytesEach, result.GoroutinesN, result.KeepAlives},
	}
	for _, m := range []struct {
		row    string
		metric result.Metric
		bound  Bound
	}{
		{"10,000 resources held: bytes each", result.BytesEach, Bound{1 << 10, 512}},
		{"same: goroutines", result.GoroutinesN, Bound{1, 0}},
		{"same: keep-alives a second (one for each third of a time to live of 10 s)", result.KeepAlives, Bound{0.34, 0}},
	} {
		s.Musts = append(s.Musts, Must{Row: m.row, Contender: guardDo, Metric: m.metric, Compared: Absolute, AtMost: true, Bounds: map[result.Regime]Bound{tmpfs: m.bound}})
	}
	return []Scenario{s}
}
