package scenario

import (
	"fmt"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// waiters shows whether a hand-over takes longer the more wait.
func waiters() []Scenario {
	s := Scenario{
		Name:      "waiters",
		Title:     "The hand-over of one lock to 1, 10, 100 and 1,000 waiters",
		About:     "1 waiter: two processes with one client each. Otherwise as many clients as the name says, 10 of them in two processes and more in four.",
		Processes: 4,
		Keys:      load.Hot,
		Seconds:   3,
		Rounds:    3,
		Locks:     true,
		Metrics:   contendedMetrics,
	}
	for _, n := range []struct{ waiters, processes, goroutines int }{{1, 2, 1}, {10, 2, 5}, {100, 4, 25}, {1000, 4, 250}} {
		for _, c := range lockContenders() {
			c.Processes, c.Goroutines, c.Name = n.processes, n.goroutines, waitersOf(c.Name, n.waiters)
			s.Contenders = append(s.Contenders, c)
		}
		if n.waiters > 1 {
			s.Musts = append(s.Musts, Must{
				Row:       fmt.Sprintf("the median hand-over of Fencekit's Locker with %d waiters, against that with 1", n.waiters),
				Contender: waitersOf(locker, n.waiters), Baseline: []string{waitersOf(locker, 1)},
				Metric: result.HandOverP50, Compared: AsRatio, AtMost: true, Bounds: here(flat, 0),
			})
		}
	}
	s.Baseline = []string{waitersOf(mutex, 1)}
	return []Scenario{s}
}

// flat is how much longer something may take to count as flat.
const flat = 1.5

func waitersOf(lock string, n int) string { return fmt.Sprintf("%s, %d", lock, n) }
