// Package suite runs scenarios one after the other, and keeps what they show together.
package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	runs "github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// ErrEnvironment: a run was not possible because a server could not be started or a fault
// could not be reverted. It says nothing about the code under test.
var ErrEnvironment = errors.New("chaos: environment is not ready")

// Config says what to run: see chaos.Config.
type Config struct {
	Scenarios, Groups []string
	Seed              uint64
	Seeds             int
	Duration          time.Duration
	ScriptSeeds       int
	Dir               string
	Parallel          int
	Workload          worker.Workload
	Progress          func(Progress)
}

// Progress is how far a suite is: see chaos.Progress.
type Progress struct {
	Run   *check.Run
	Ended bool
	Done  int
	Total int
}

type suite struct {
	*plan
	began time.Time

	mu     sync.Mutex
	next   func() (runs.Task, bool) // the next run
	kept   *check.Suite
	failed error // the first failure, which ends the suite
}

// Run does the runs that cfg asks for, and returns them with their common verdict.
func Run(ctx context.Context, cfg Config) (*check.Suite, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &suite{began: time.Now()}
	if s.plan, err = planOf(cfg); err != nil {
		return nil, err
	}
	next, stop := iter.Pull(s.tasks)
	defer stop()
	s.next = next
	if err := s.open(); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	for range cfg.Parallel {
		running.Go(func() { s.work(ctx) })
	}
	running.Wait()
	if ended := errors.Join(s.failed, context.Cause(ctx)); ended != nil {
		s.kept.Ended = ended.Error()
	}
	return s.kept, errors.Join(s.failed, s.close(), context.Cause(ctx))
}

// open saves the suite, so that it has its groups even if it is killed.
func (s *suite) open() error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(s.Dir); err != nil || len(there) > 0 {
		return cmp.Or(err, fmt.Errorf("%w: there are files in %s: take another directory", worker.ErrConfig, s.Dir))
	}
	s.kept = &check.Suite{Started: s.began, Wanted: s.wanted(), Groups: worker.Groups(), Scenarios: runs.Describe()}
	return s.close()
}

func (s *suite) work(ctx context.Context) {
	servers := &runs.Servers{}
	defer func() { s.fail(servers.Close(context.WithoutCancel(ctx))) }()
	for ctx.Err() == nil {
		t, ok := s.take()
		if !ok {
			return
		}
		s.progress(t.Result(), false)
		r, err := t.Do(ctx, servers, s.Dir)
		switch {
		case err == nil:
			s.keep(servers, r)
		case ctx.Err() != nil:
		case errors.Is(err, worker.ErrWorkload):
			s.fail(fmt.Errorf("%s: %w", t.Result(), err))
		default:
			s.fail(fmt.Errorf("%w: %s: %w", ErrEnvironment, t.Result(), err))
		}
	}
}

func (s *suite) take() (t runs.Task, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return t, false
	}
	return s.next()
}

func (s *suite) keep(servers *runs.Servers, r *check.Run) {
	s.mu.Lock()
	s.kept.Runs = append(s.kept.Runs, *r)
	s.kept.Versions = versions(servers, s.kept.Versions)
	s.mu.Unlock()
	s.progress(r, true)
}

func (s *suite) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Took = time.Since(s.began)
	s.kept.Judge()
	return check.SaveSuite(s.Dir, s.kept)
}

func (s *suite) progress(r *check.Run, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Progress(Progress{Run: r, Ended: ended, Done: len(s.kept.Runs), Total: len(s.kept.Wanted)})
}

func (s *suite) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

func versions(servers *runs.Servers, known map[string]string) map[string]string {
	all := map[string]string{"go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH}
	maps.Copy(all, known)
	if source := servers.PostgresSource(); source != "" {
		all["postgres"] = source
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		all["fencekit"] = info.Main.Version
		for _, module := range info.Deps {
			if module.Path == "github.com/jackc/pgx/v5" || module.Path == "go.etcd.io/etcd/client/v3" {
				all[strings.Split(module.Path, "/")[1]] = module.Version
			}
		}
	}
	return all
}

type plan struct {
	Config
	scenarios []runs.Scenario
	groups    []string
}

func planOf(cfg Config) (*plan, error) {
	p := &plan{Config: cfg}
	var err error
	if p.scenarios, err = choose("scenarios", cfg.Scenarios, runs.Scenarios, func(s runs.Scenario) []string { return []string{s.Name, s.Family} }); err != nil {
		return nil, err
	}
	if _, builtIn := cfg.Workload.(worker.Stock); len(cfg.Scenarios) == 0 && !builtIn {
		p.scenarios = slices.DeleteFunc(slices.Clone(p.scenarios), func(s runs.Scenario) bool { return s.Patroni })
	}
	groups, err := choose("groups", cfg.Groups, worker.Groups(), func(g check.Group) []string { return []string{g.Name} })
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		p.groups = append(p.groups, g.Name)
	}
	if len(p.round(cfg.Seed)) == 0 {
		return nil, fmt.Errorf("%w: these scenarios run with none of these controls: %s", worker.ErrConfig, strings.Join(p.groups, ", "))
	}
	return p, nil
}

// tasks are all scenarios with the first seed, then all with the next: a suite that ends early has done as many
// seeds of each.
func (p *plan) tasks(yield func(runs.Task) bool) {
	until := time.Now().Add(p.Duration)
	for seed := p.Seed; p.Duration > 0 || seed < p.Seed+uint64(p.Seeds); seed++ {
		round := p.round(seed)
		for _, t := range round {
			if p.Duration > 0 && seed > p.Seed && time.Now().After(until) || !yield(t) {
				return
			}
		}
		if len(round) == 0 {
			return
		}
	}
}

// wanted are the directories of the runs that a complete suite has at least.
func (p *plan) wanted() (dirs []string) {
	least := *p
	if least.Duration > 0 {
		least.Duration, least.Seeds = 0, 1
	}
	for t := range least.tasks {
		dirs = append(dirs, t.Dir())
	}
	return dirs
}

// round is all runs with one seed. Scripts and controls run with the first seeds alone.
func (p *plan) round(seed uint64) (tasks []runs.Task) {
	again := seed >= p.Seed+uint64(p.ScriptSeeds)
	calmed := map[string]bool{}
	for _, sc := range p.scenarios {
		w := p.Workload
		if stock, ok := w.(worker.Stock); ok {
			stock.Initial = sc.Stock
			w = stock
		}
		for _, group := range p.groups {
			if again && (sc.IsScript() || group != check.Fenced) || group != check.Fenced && !slices.Contains(sc.Controls, group) {
				continue
			}
			t := runs.Task{Scenario: sc, Workload: w, Group: group, Seed: seed, Faults: true}
			tasks = append(tasks, t)
			if group != check.Fenced && !calmed[group] { // once without faults, to show that the faults break it
				calmed[group] = true
				t.Faults = false
				tasks = append(tasks, t)
			}
		}
	}
	return tasks
}

func (c Config) withDefaults() (Config, error) {
	for name, n := range map[string]int{"Seeds": c.Seeds, "ScriptSeeds": c.ScriptSeeds, "Parallel": c.Parallel} {
		if n < 0 {
			return c, fmt.Errorf("%w: %s is %d: give a positive number, or 0 for the default", worker.ErrConfig, name, n)
		}
	}
	if c.Duration < 0 {
		return c, fmt.Errorf("%w: Duration is %v: give a positive one, or 0 for the number of Seeds", worker.ErrConfig, c.Duration)
	}
	if c.Dir == "" {
		return c, fmt.Errorf("%w: Dir is missing: name a directory for the files of the runs", worker.ErrConfig)
	}
	c.Seed, c.Seeds, c.ScriptSeeds, c.Parallel = max(c.Seed, 1), max(c.Seeds, 1), max(c.ScriptSeeds, 1), max(c.Parallel, 1)
	if c.Workload == nil {
		c.Workload = worker.Stock{}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c, nil
}

func choose[T any](what string, patterns []string, all []T, names func(T) []string) (chosen []T, err error) {
	if len(patterns) == 0 {
		return all, nil
	}
	matches := func(one T, pattern string) bool {
		return slices.ContainsFunc(names(one), func(name string) bool { ok, _ := path.Match(pattern, name); return ok || pattern == name })
	}
	for _, pattern := range patterns {
		if !slices.ContainsFunc(all, func(one T) bool { return matches(one, pattern) }) {
			var known []string
			for _, one := range all {
				known = append(known, names(one)[0])
			}
			return nil, fmt.Errorf("%w: %q matches none of the %s: %s", worker.ErrConfig, pattern, what, strings.Join(known, ", "))
		}
	}
	for _, one := range all {
		if slices.ContainsFunc(patterns, func(pattern string) bool { return matches(one, pattern) }) {
			chosen = append(chosen, one)
		}
	}
	return chosen, nil
}
