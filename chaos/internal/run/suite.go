package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/result"
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
	return s.kept, errors.Join(s.failed, s.close(), writeReports(cfg.Dir, s.kept), context.Cause(ctx))
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
