// Package run does one run of a scenario: it starts servers and worker processes, injects faults while the
// workers operate, observes all of it, and has it judged. A run that could not be judged is an error and not
// a verdict.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/test/clock"
)

// Task is one run to do.
type Task struct {
	Scenario Scenario
	Workload worker.Workload
	Group    string // check.Fenced, or the name of a control
	Seed     uint64
	Faults   bool // false: the same operations without faults

	bounds bounds // zero: usualBounds
}

// bounds are the times within which the code under test has to end, on a busy machine too. What takes longer
// hangs.
type bounds struct {
	operation time.Duration // one operation; its context ends then
	grace     time.Duration // an operation whose context has ended
	close     time.Duration // a worker process that was asked to end
	run       time.Duration // the whole run
	data      time.Duration // Prepare, and Check; its context ends then
}

var usualBounds = bounds{operation: time.Minute, grace: 15 * time.Second, close: 2 * worker.CloseBound, run: 8 * time.Minute, data: 2 * time.Minute}

const (
	setUpBound = 3 * time.Minute
	checkBound = 2 * time.Minute
)

// Usual is about how long a run takes, with the start of its workers and its checks.
const Usual = 10 * time.Second

// Dir is where the run's files are, below those of its suite.
func (t Task) Dir() string {
	last := fmt.Sprintf("seed-%d", t.Seed)
	if !t.Faults {
		last += "-calm"
	}
	return path.Join(t.Scenario.Name, t.Group, last)
}

// Result is the run before anything has happened.
func (t Task) Result() *check.Run {
	r := &check.Run{
		Scenario: t.Scenario.Name, Family: t.Scenario.Family, Group: t.Group, Seed: t.Seed, Faults: t.Faults, Started: time.Now(), Dir: t.Dir(),
		Progress: worker.ProgressBound, Stock: t.Workload.Name() == worker.Stock{}.Name(), Workload: t.Workload.Name(),
		Beside: t.Scenario.beside,
	}
	if t.Group == check.Fenced && t.Faults {
		r.Requires = t.Scenario.Requires
	}
	for _, s := range t.Scenario.faults(t.Seed) {
		r.Schedule = append(r.Schedule, check.Step{At: s.at, For: s.lasts, Fault: s.fault.name})
	}
	return r
}

// Do does the run on servers, and writes its files below dir. It fails if there is nothing to judge: a server did
// not start, a fault could not be reverted, or ctx has ended.
func (t Task) Do(ctx context.Context, servers *Servers, dir string) (_ *check.Run, err error) {
	t.bounds = cmp.Or(t.bounds, usualBounds)
	bound := setUpBound + t.bounds.run + 2*checkBound
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("chaos: the run was not over after %v", bound))
	defer cancel()
	r := t.Result()
	at := filepath.Join(dir, filepath.FromSlash(r.Dir))
	if err := errors.Join(os.RemoveAll(at), os.MkdirAll(at, 0o755)); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(at, check.HistoryFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	env := &environment{Task: t, dir: at, trace: history.NewTrace(file)}
	observed, err := env.whole(ctx, servers)
	if err := errors.Join(err, env.trace.Err(), context.Cause(ctx)); err != nil {
		return nil, err
	}
	r.Took, r.Failed, r.Wrong = time.Since(r.Started), history.Text(env.checked), history.Text(errors.Join(env.wrong...))
	r.Judge(env.trace.Events(), observed)
	return r, check.Save(dir, r, &observed)
}

func (s *environment) whole(ctx context.Context, servers *Servers) (_ observe.Observation, err error) {
	defer func() { err = errors.Join(err, s.tearDown(context.WithoutCancel(ctx))) }()
	if err := s.setUp(ctx, servers); err != nil {
		return observe.Observation{}, err
	}
	if s.observer, err = observe.Start(ctx, s.client, s.prefix, s.dsn); err != nil {
		return observe.Observation{}, err
	}
	err = s.startWorkers(ctx)
	if err == nil {
		err = s.act(ctx)
	}
	if err != nil {
		err = errors.Join(err, s.each((*seat).kill))
	} else {
		err = s.conclude(ctx)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkBound)
	defer cancel()
	observed, finishErr := s.observer.Finish(late)
	return observed, errors.Join(err, finishErr)
}

// The failures of the code under test that end a script.
var (
	errHangs        = errors.New("chaos: it hangs")
	errProcessEnded = fmt.Errorf("%w: the worker process has ended", errMissed)
	errWrong        = errors.New("chaos: not as the script expects")
)

// act performs a scenario. That the code under test hangs or crashes is no error.
func (s *environment) act(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, s.bounds.run, fmt.Errorf("%w: the run was not over after %v", errHangs, s.bounds.run))
	defer cancel()
	err := s.perform(bounded)
	if ctx.Err() == nil && (errors.Is(err, errHangs) || errors.Is(err, errProcessEnded) || errors.Is(err, errWrong)) {
		s.fail(err)
		return nil
	}
	return err
}

func (s *environment) perform(ctx context.Context) (err error) {
	s.trace.Phase(history.PhaseLoad)
	if s.Scenario.script != nil {
		err = s.Scenario.script(s, ctx)
	} else {
		err = s.underLoad(ctx, s.Scenario.faults(s.Seed))
	}
	if err != nil {
		return err
	}
	s.faultsOver()
	s.trace.Phase(history.PhaseFinal)
	return s.finalOperations(ctx)
}

func (s *environment) faultsOver() { s.over.Do(func() { s.trace.Phase(history.PhaseFaultsOver) }) }

func (s *environment) conclude(ctx context.Context) error {
	s.fail(s.each((*seat).stop))
	s.trace.Phase(history.PhaseEnd)
	var wrong error
	for _, w := range s.workers {
		wrong = errors.Join(wrong, w.crashes())
	}
	if wrong != nil && s.Group != check.Fenced { // this run says nothing about the control
		return fmt.Errorf("%w under the control %s: there Env.Guard and Env.Locker are nil, and only Env.Do and Hold work: %w", worker.ErrWorkload, s.Group, wrong)
	}
	s.fail(wrong)
	if s.checked = s.onData(ctx, "Check", s.Workload.Check); errors.Is(s.checked, errHangs) {
		s.fail(s.checked) // it has said nothing of the data
		s.checked = nil
	}
	return nil
}

const loadTail = time.Second

func (s *environment) underLoad(ctx context.Context, schedule []step) error {
	for _, w := range s.workers {
		if err := w.send(worker.Command{Load: true}); err != nil {
			return err
		}
	}
	length := time.Duration(0)
	for _, step := range schedule {
		length = max(length, step.at+step.lasts)
	}
	if s.Faults {
		if err := s.play(ctx, schedule); err != nil {
			return err
		}
	} else if err := clock.Sleep(ctx, length); err != nil {
		return err
	}
	s.faultsOver()
	if err := clock.Sleep(ctx, loadTail); err != nil {
		return err
	}
	return s.endLoad(ctx)
}

func (s *environment) endLoad(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bounds.operation+s.bounds.grace, errHangs)
	defer cancel()
	quiet := s.trace.Listen(func(e history.Event) bool {
		return e.Kind == history.Note && e.Name == worker.NoteQuiet || e.Kind == history.Ends
	})
	for _, w := range s.workers {
		if err := w.send(worker.Command{Quiet: true}); err != nil {
			return err
		}
	}
	for range s.workers {
		e, err := quiet(ctx)
		if err != nil {
			return fmt.Errorf("chaos: operations did not end: %w", err)
		}
		if e.Kind == history.Ends {
			return fmt.Errorf("%w: %s: %s", errProcessEnded, e.Process, e.Error)
		}
	}
	return nil
}

// finalOperations has every worker work on every resource once more. The checks judge whether that succeeds in
// time.
func (s *environment) finalOperations(ctx context.Context) error {
	for number := range s.workers {
		for _, resource := range s.Workload.Resources() {
			if _, err := s.finish(ctx, number, worker.Op{Resource: resource}, worker.Command{Within: worker.ProgressBound}); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	injectBound = 10 * time.Second
	revertBound = 30 * time.Second
)

// play returns when the last fault is reverted.
func (s *environment) play(ctx context.Context, schedule []step) error {
	errs := make([]error, len(schedule))
	var playing sync.WaitGroup
	for i, step := range schedule {
		playing.Go(func() {
			if clock.Sleep(ctx, step.at) != nil {
				return
			}
			bounded, cancel := context.WithTimeout(ctx, injectBound)
			defer cancel()
			revert, err := s.inject(bounded, step.fault)
			if errs[i] = err; errors.Is(err, errMissed) {
				errs[i] = nil
			}
			if revert != nil {
				_ = clock.Sleep(ctx, step.lasts) // if ctx ends the fault is reverted at once
				errs[i] = revert(ctx)
			}
		})
	}
	playing.Wait()
	return errors.Join(append(errs, context.Cause(ctx))...)
}

func (s *environment) inject(ctx context.Context, f fault) (reverted, error) {
	revert, err := f.inject(ctx, s)
	switch {
	case errors.Is(err, errMissed):
		s.trace.Record(history.Event{Kind: history.Note, Name: "missed", Error: fmt.Sprintf("%s: %v", f.name, err)})
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("chaos: %s: %w", f.name, err)
	}
	if revert == nil {
		s.trace.Record(history.Event{Kind: history.Injected, Name: f.name})
		return nil, nil
	}
	return s.injected(f.name, revert), nil
}

// injected records that a fault is in effect; so does what it returns when it has reverted it.
func (s *environment) injected(name string, revert reverted) reverted {
	s.trace.Record(history.Event{Kind: history.Injected, Name: name})
	return func(ctx context.Context) error {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), revertBound)
		defer cancel()
		if err := revert(bounded); err != nil {
			return fmt.Errorf("chaos: reverting %s: %w", name, err)
		}
		s.trace.Record(history.Event{Kind: history.Reverted, Name: name})
		return nil
	}
}
