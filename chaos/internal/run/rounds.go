package run

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
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

// stocked is the workload; the built-in one has the scenario's stock.
func stocked(w workload.Workload, sc scenario.Scenario) workload.Workload {
	if s, ok := w.(workload.Stock); ok && s.Initial == 0 {
		s.Initial = sc.Stock
		return s
	}
	return w
}

// Config says what to run. The zero value of each field means its default.
type Config struct {
	// Scenarios are names, families or patterns (path.Match) of scenarios. Default: all, but for
	// those that need Patroni if Workload is not Stock.
	Scenarios []string
	// Groups are result.Fenced and names of controls, or patterns. Default: all.
	Groups []string
	// Seed is the first seed, Seeds how many of them each scenario runs with. Default
	// 1 and 1.
	Seed  uint64
	Seeds int
	// Duration, in place of Seeds, is for how long new runs are begun; the runs with the
	// first seed are all done, however long that takes (UsualRun times their number). Default: Seeds decides.
	Duration time.Duration
	// ScriptSeeds is how many of the seeds scripts and controls run with. Scripts do the
	// same with every seed, but not at the same moments. Default 1.
	ScriptSeeds int
	// Dir gets the files of the runs. It is created, and must be empty unless Resume is set.
	// One suite at a time writes to it. See package result.
	Dir string
	// Resume adds to the runs that are in Dir, and doesn't repeat those.
	Resume bool
	// Parallel is how many runs go on at the same time, each on its own servers. Default 1.
	Parallel int
	// Workload is the code under test. Default: Stock.
	Workload workload.Workload
	// Command is how the suite would be run again, for its report.
	Command string
	// Progress is called when a run begins, and when it ends. Calls don't overlap. Default:
	// no calls.
	Progress func(Progress)
}

// Progress is how far a suite is.
type Progress struct {
	Run   *result.Run // that begins or has ended
	Ended bool        // Run has ended, and its Verdict is known
	Done  int         // number of runs that have ended
	Total int         // number of runs in all; with a Duration those with the first seed, which are all done
}

func (c Config) withDefaults() (Config, error) {
	for name, n := range map[string]int{"Seeds": c.Seeds, "ScriptSeeds": c.ScriptSeeds, "Parallel": c.Parallel} {
		if n < 0 {
			return c, fmt.Errorf("%w: %s is %d: give a positive number, or 0 for the default", workload.ErrConfig, name, n)
		}
	}
	if c.Duration < 0 {
		return c, fmt.Errorf("%w: Duration is %v: give a positive one, or 0 for the number of Seeds", workload.ErrConfig, c.Duration)
	}
	c.Seeds, c.ScriptSeeds, c.Parallel = max(c.Seeds, 1), max(c.ScriptSeeds, 1), max(c.Parallel, 1)
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.Workload == nil {
		c.Workload = workload.Stock{}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Dir == "" {
		return c, fmt.Errorf("%w: Dir is missing: name a directory for the files of the runs", workload.ErrConfig)
	}
	return c, nil
}

// scenarios returns the chosen scenarios.
func (c Config) scenarios() ([]scenario.Scenario, error) {
	all := scenario.All()
	names := func(s scenario.Scenario) []string { return []string{s.Name, s.Family} }
	chosen, err := choose(c.Scenarios, all, names)
	if err != nil {
		return nil, fmt.Errorf("%w of the scenarios: %s", err, strings.Join(namesOf(all, names), ", "))
	}
	if _, builtIn := c.Workload.(workload.Stock); len(c.Scenarios) == 0 && !builtIn {
		chosen = slices.DeleteFunc(chosen, func(s scenario.Scenario) bool { return s.Patroni })
	}
	return chosen, nil
}

// groups returns the chosen groups, fenced first.
func (c Config) groups() ([]string, error) {
	all := []string{result.Fenced}
	for _, control := range control.All() {
		all = append(all, control.Name)
	}
	names := func(g string) []string { return []string{g} }
	chosen, err := choose(c.Groups, all, names)
	if err != nil {
		return nil, fmt.Errorf("%w of the groups: %s", err, strings.Join(all, ", "))
	}
	return chosen, nil
}

// choose returns those of all of which a pattern matches a name. Each pattern has to match
// something.
func choose[T any](patterns []string, all []T, names func(T) []string) (chosen []T, err error) {
	if len(patterns) == 0 {
		return all, nil
	}
	unused := slices.Clone(patterns)
	for _, one := range all {
		for _, pattern := range patterns {
			if !slices.ContainsFunc(names(one), func(name string) bool { ok, _ := path.Match(pattern, name); return ok || pattern == name }) {
				continue
			}
			unused = slices.DeleteFunc(unused, func(p string) bool { return p == pattern })
			if !slices.ContainsFunc(chosen, func(c T) bool { return names(c)[0] == names(one)[0] }) {
				chosen = append(chosen, one)
			}
		}
	}
	if len(unused) > 0 {
		return nil, fmt.Errorf("%w: %q matches none", workload.ErrConfig, unused[0])
	}
	return chosen, nil
}

func namesOf[T any](all []T, names func(T) []string) (flat []string) {
	for _, one := range all {
		flat = append(flat, names(one)[0])
	}
	return flat
}
