package scenario

import (
	"time"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// polling compares locks whose waiters ask again and again with those whose waiters are told:
// where few clients lock often, and where many contend.
func polling() []Scenario {
	few := pollingScenario("polling/few", "Polling or watching: few clients that lock often", 1, 0)
	few.About = "4 processes with one client each. Each acquires the lock, releases it at once and begins again. Where waiters poll, the one that released often gets it again before others ask: the fair share and the largest wait show that."
	many := pollingScenario("polling/many", "Polling or watching: many clients that contend", 16, 2*time.Millisecond)
	many.About = "4 processes with 16 clients each. Each holds the lock for 2 ms."
	var all []Scenario
	for _, s := range []Scenario{few, many} {
		long := s
		long.Name, long.Title, long.About = s.Name+"/long", s.Title+", over a longer time", s.About+" How they develop."
		long.Long, long.Rounds, long.Regimes = true, 1, []result.Regime{disk, tmpfs}
		all = append(all, s, long)
	}
	return all
}

func pollingScenario(name, title string, goroutines int, hold time.Duration) Scenario {
	return Scenario{
		Name:  name,
		Title: title,
		Contenders: []Contender{
			{Name: locker, Open: contender.Locker, Fencekit: true},
			{Name: mutex, Open: contender.Mutex},
			{Name: redsync, Open: contender.Redsync, Unsafe: redisTTL},
			{Name: setNX1, Open: contender.SetNX(every1), Unsafe: redisTTL},
			{Name: setNX50, Open: contender.SetNX(every50), Unsafe: redisTTL},
			{Name: pgLock, Open: contender.PGLock, Unsafe: noFence},
		},
		Baseline:   []string{mutex},
		Processes:  4,
		Goroutines: goroutines,
		Keys:       load.Hot,
		Hold:       hold,
		Seconds:    3,
		Rounds:     3,
		Locks:      true,
		Metrics: []result.Metric{
			result.Mean, result.P70, result.P90, result.P99, result.Max, result.HandOverP50, result.HandOverP99, result.FairShare,
			result.ClientCPU, result.EtcdCPU, result.RedisCPU, result.PostgresCPU, result.Abandoned,
		},
	}
}
