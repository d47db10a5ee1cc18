package run

import (
	"time"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/scenario"
)

// rounds is how many rounds a scenario has.
func (c *Config) rounds(s *scenario.Scenario) int {
	if s.Rounds > 0 {
		return min(s.Rounds, c.Rounds)
	}
	return c.Rounds
}

// measured is how long each cell of a scenario is measured.
func (c *Config) measured(s *scenario.Scenario) time.Duration {
	seconds := c.Seconds
	switch {
	case c.Tiny:
	case s.Long:
		seconds = c.Long
	default:
		seconds = max(seconds, s.Seconds)
	}
	return time.Duration(seconds * float64(time.Second))
}

// warm is how long each cell of a scenario runs unmeasured first, at least.
func (c *Config) warm(s *scenario.Scenario) time.Duration {
	if c.Tiny || s.Keys == load.Fresh {
		return 0
	}
	return max(c.measured(s)/4, 200*time.Millisecond)
}

// Takes is how long a scenario takes in this many regimes, without starting and stopping the
// workers and the database of each cell.
func (c *Config) Takes(s *scenario.Scenario, regimes int) time.Duration {
	cells := c.rounds(s) * len(s.Contenders) * regimes
	return time.Duration(cells) * (c.warm(s) + c.measured(s))
}

// warmBound is the longest wait for all goroutines of the workers to have done something: if a
// lock starves its waiters, some never do.
func (r *runner) warmBound(s *scenario.Scenario) time.Duration {
	switch {
	case r.Tiny || s.Keys == load.Fresh:
		return 0
	case s.Locks:
		return 2 * time.Second
	default:
		return 20 * time.Second
	}
}
