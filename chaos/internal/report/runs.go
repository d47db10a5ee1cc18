package report

import (
	"fmt"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

// schedule is the faults of a scenario by a seed, and the runs of all groups with it.
type schedule struct {
	Scenario string
	Seed     uint64
	Faults   bool
	Steps    []string
	More     int // number of steps that are left out
	Runs     []runLine
}

// runLine is one run.
type runLine struct {
	Group, Verdict, Class, Reason, Dir string
	Figures                            string
}

// How many runs, and steps of a schedule, are listed at most.
const (
	maxRuns  = 2500
	maxSteps = 40
)

// schedulesOf lists runs by schedule, Fencekit's runs that did not pass first, and
// returns how many runs are left out.
func schedulesOf(suite *result.Suite) (all []*schedule, more int) {
	bySchedule := map[string]*schedule{}
	listed := 0
	for _, failed := range []bool{true, false} {
		for i := range suite.Runs {
			r := &suite.Runs[i]
			if (r.Group == result.Fenced && r.Verdict != result.Pass) != failed {
				continue
			}
			if listed == maxRuns {
				more++
				continue
			}
			listed++
			s := bySchedule[sameSchedule(r)]
			if s == nil {
				s = scheduleOf(r)
				bySchedule[sameSchedule(r)] = s
				all = append(all, s)
			}
			s.Runs = append(s.Runs, lineOf(suite, r))
		}
	}
	return all, more
}

func scheduleOf(r *result.Run) *schedule {
	s := &schedule{Scenario: r.Scenario, Seed: r.Seed, Faults: r.Faults}
	if !r.Faults {
		s.Steps = []string{"no faults"}
		return s
	}
	for i, step := range r.Schedule {
		if i == maxSteps {
			s.More = len(r.Schedule) - i
			break
		}
		line := fmt.Sprintf("%s %s", seconds(step.At), cut(step.Fault))
		if step.For > 0 {
			line += " for " + seconds(step.For)
		}
		s.Steps = append(s.Steps, line)
	}
	if len(s.Steps) == 0 {
		s.Steps = []string{"a script: see the run's history"}
	}
	return s
}

func lineOf(suite *result.Suite, r *result.Run) runLine {
	c := r.Counts
	figures := []string{count(c.Operations, "operation", "operations"), count(c.Faults, "fault", "faults")}
	for _, f := range []struct {
		n         int
		one, many string
	}{{c.Rejections, "rejection", "rejections"}, {c.Unknown, "unknown", "unknown"}, {c.Oversold, "oversold", "oversold"}, {c.Lost, "update lost", "updates lost"}} {
		if f.n > 0 {
			figures = append(figures, count(f.n, f.one, f.many))
		}
	}
	line := runLine{Group: title(suite, r.Group), Verdict: string(r.Verdict), Class: class(r), Dir: r.Dir, Figures: strings.Join(figures, ", ")}
	if r.Verdict != result.Pass {
		line.Reason = cut(r.Reason)
	}
	return line
}
