// Package run runs scenarios of chaos, one or many: it decides which seeds are run and in
// which order, starts the servers, does each run, checks it, and writes its files and the
// reports.
//
// A run that could not be judged, because a server did not start or a fault could not be
// reverted, is an error and not a verdict. The files of a run replace those of an
// unfinished one.
package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/report"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// ErrEnvironment: a run could not take place, because a server could not be started
// or a fault could not be undone. It says nothing about what is tested.
var ErrEnvironment = errors.New("chaos: environment is not ready")

// suite is a result.Suite in the making. Its methods may be called concurrently.
type suite struct {
	cfg    Config
	rounds *rounds
	began  time.Time
	before time.Duration // what earlier runs of it took, if it is resumed

	mu     sync.Mutex
	kept   *result.Suite
	done   map[string]bool // runs by their directories
	failed error
}

// Run does the runs that cfg asks for, and returns them with their common verdict. When it
// returns, cfg.Dir has everything, with a report to open in a browser (result.ReportFile),
// even if it fails. It fails with ErrConfig if cfg is invalid, with ErrWorkload or
// ErrEnvironment if a run was not possible, and with the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (_ *result.Suite, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &suite{cfg: cfg, began: time.Now(), done: map[string]bool{}}
	if s.rounds, err = newRounds(cfg); err != nil {
		return nil, err
	}
	free, err := occupy(cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, free()) }()
	if err := s.open(); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	for range cfg.Parallel {
		running.Go(func() { s.work(ctx) })
	}
	running.Wait()
	s.kept.Ended = text(errors.Join(s.failed, context.Cause(ctx)))
	return s.kept, errors.Join(s.failed, s.close(), writeReport(cfg.Dir, s.kept), context.Cause(ctx))
}

// open reads the runs of an earlier suite, and saves the suite, so that it has its groups
// even if it is killed.
func (s *suite) open() error {
	s.kept = &result.Suite{Started: s.began}
	kept, err := result.LoadSuite(s.cfg.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !s.cfg.Resume:
		return fmt.Errorf("%w: there are runs in %s: to go on with them give --resume (Config.Resume), or take another directory", workload.ErrConfig, s.cfg.Dir)
	default:
		s.kept, s.before = kept, kept.Took
	}
	for _, r := range s.kept.Runs {
		if name := s.cfg.Workload.Name(); r.Workload != name {
			return fmt.Errorf("%w: the runs in %s are of workload %q, not %q: take another directory", workload.ErrConfig, s.cfg.Dir, r.Workload, name)
		}
		s.done[r.Dir] = true
	}
	s.kept.Command, s.kept.Wanted = s.cfg.Command, s.rounds.wanted()
	s.kept.Scenarios, s.kept.Groups = describeScenarios(), Groups()
	return s.close()
}

// work does one run after another on servers of its own.
func (s *suite) work(ctx context.Context) {
	servers := environment.NewServers()
	defer func() { s.fail(servers.Close(context.WithoutCancel(ctx))) }()
	for ctx.Err() == nil && !s.hasFailed() {
		t, ok := s.rounds.next()
		if !ok {
			return
		}
		if s.isDone(t) {
			continue
		}
		s.progress(t.result(nil), false)
		r, err := t.run(ctx, servers, s.cfg.Dir)
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%s: %w", t.result(nil), err)
			if !errors.Is(err, workload.ErrWorkload) {
				err = fmt.Errorf("%w: %w", ErrEnvironment, err)
			}
			s.fail(err)
		}
		if err == nil {
			s.keep(servers, r)
		}
	}
}

// keep adds a run. The run itself is saved already; LoadSuite finds it.
func (s *suite) keep(servers *environment.Servers, r *result.Run) {
	s.mu.Lock()
	s.kept.Runs = append(s.kept.Runs, *r)
	s.kept.Versions = versions(servers, s.kept.Versions)
	s.done[r.Dir] = true
	s.mu.Unlock()
	s.progress(r, true)
}

// close judges the runs so far, and saves the suite.
func (s *suite) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Took = s.before + time.Since(s.began)
	s.kept.Judge()
	return result.SaveSuite(s.cfg.Dir, s.kept)
}

func (s *suite) isDone(t task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[t.dir()]
}

func (s *suite) progress(r *result.Run, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Progress(Progress{Run: r, Ended: ended, Done: len(s.kept.Runs), Total: len(s.kept.Wanted)})
}

// fail ends the suite. The first error is kept.
func (s *suite) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

func (s *suite) hasFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed != nil
}

// Groups returns all groups, Fencekit's first.
func Groups() []result.Group {
	groups := []result.Group{{Name: result.Fenced, Title: "Fencekit", Recipe: "guard.Do: a lock in etcd, claimed in the database before anything is read, and sealed at COMMIT"}}
	for _, c := range control.All() {
		groups = append(groups, result.Group{Name: c.Name, Title: c.Title, Recipe: c.Recipe, Flaw: c.Flaw, RedByDesign: c.RedByDesign})
	}
	return groups
}

func describeScenarios() (all []result.Scenario) {
	for _, s := range scenario.All() {
		all = append(all, result.Scenario{Name: s.Name, Family: s.Family, Summary: s.Summary})
	}
	return all
}

// versions adds the versions of what runs on servers use to the known ones.
func versions(servers *environment.Servers, known map[string]string) map[string]string {
	all := map[string]string{"go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH}
	maps.Copy(all, known)
	if source := servers.PostgresSource(); source != "" {
		all["postgres"] = source
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		all["fencekit"] = info.Main.Version
		for _, module := range info.Deps {
			switch module.Path {
			case "go.etcd.io/etcd/server/v3":
				all["etcd"] = module.Version
			case "github.com/jackc/pgx/v5":
				all["pgx"] = module.Version
			}
		}
	}
	return all
}

// occupy creates a directory, and keeps other suites out of it until free is called or this
// process ends. It fails with ErrConfig if another suite has it.
func occupy(dir string) (free func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w: another suite is writing to %s: wait for its end, or take another directory", workload.ErrConfig, dir)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	// A child process that is being started may have the descriptor for a moment longer than this one.
	return func() error { return errors.Join(syscall.Flock(int(d.Fd()), syscall.LOCK_UN), d.Close()) }, nil
}

// writeReport writes the report of a suite.
func writeReport(dir string, suite *result.Suite) (err error) {
	file, err := os.Create(filepath.Join(dir, result.ReportFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return report.HTML(file, suite, func(run *result.Run) ([]history.Event, *observe.Observation, error) { return result.Load(dir, run) })
}
