package run

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// rounds are the runs of a suite, in order: all scenarios with the first seed, then all with
// the next. So a suite that ends early has done as many seeds of each scenario. Its methods
// may be called concurrently.
type rounds struct {
	cfg       Config
	scenarios []scenario.Scenario
	groups    []string
	until     time.Time // only runs of the first round begin after it; zero: Seeds decides

	mu   sync.Mutex
	seed uint64 // of the next round
	rest []task // of the present round
}

func newRounds(cfg Config) (*rounds, error) {
	scenarios, err := cfg.scenarios()
	if err != nil {
		return nil, err
	}
	groups, err := cfg.groups()
	if err != nil {
		return nil, err
	}
	r := &rounds{cfg: cfg, scenarios: scenarios, groups: groups, seed: cfg.Seed}
	if len(r.round(cfg.Seed)) == 0 {
		return nil, fmt.Errorf("%w: these scenarios run with none of these controls: %s", workload.ErrConfig, strings.Join(groups, ", "))
	}
	if cfg.Duration > 0 {
		r.until = time.Now().Add(cfg.Duration)
	}
	return r, nil
}

// next returns the next run, if there is one.
func (r *rounds) next() (task, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.rest) == 0 {
		if r.over() {
			return task{}, false
		}
		r.rest = r.round(r.seed)
		r.seed++
	}
	t := r.rest[0]
	if t.seed > r.cfg.Seed && r.late() {
		return task{}, false
	}
	r.rest = r.rest[1:]
	return t, true
}

// over reports whether there are no further rounds.
func (r *rounds) over() bool {
	if r.until.IsZero() {
		return r.seed >= r.cfg.Seed+uint64(r.cfg.Seeds)
	}
	return r.seed > r.cfg.Seed && r.late() || len(r.round(r.seed)) == 0
}

// late reports whether it is too late for new runs.
func (r *rounds) late() bool { return !r.until.IsZero() && time.Now().After(r.until) }

// wanted are the directories of the runs that a complete suite has at least.
func (r *rounds) wanted() (dirs []string) {
	seeds := r.cfg.Seeds
	if !r.until.IsZero() {
		seeds = 1
	}
	for seed := range uint64(seeds) {
		for _, t := range r.round(r.cfg.Seed + seed) {
			dirs = append(dirs, t.dir())
		}
	}
	return dirs
}

// round is all runs with one seed.
func (r *rounds) round(seed uint64) (tasks []task) {
	again := seed >= r.cfg.Seed+uint64(r.cfg.ScriptSeeds)
	calmed := map[string]bool{}
	for _, sc := range r.scenarios {
		for _, group := range r.groups {
			t := task{scenario: sc, workload: stocked(r.cfg.Workload, sc), group: group, seed: seed, faults: true, bounds: environment.UsualBounds}
			switch {
			case again && (sc.Script != nil || group != result.Fenced):
			case group == result.Fenced:
				tasks = append(tasks, t)
			case slices.Contains(sc.Controls, group):
				tasks = append(tasks, t)
				if !calmed[group] { // once without faults, to show that the faults break it
					calmed[group] = true
					t.faults = false
					tasks = append(tasks, t)
				}
			}
		}
	}
	return tasks
}

// stocked is the workload; the built-in one has the scenario's stock and lots.
func stocked(w workload.Workload, sc scenario.Scenario) workload.Workload {
	if s, ok := w.(stock.Stock); ok && s.Initial == 0 {
		s.Initial, s.Lots = sc.Stock, sc.Lots
		return s
	}
	return w
}
