package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// task is one run to do.
type task struct {
	scenario scenario.Scenario
	workload workload.Workload
	group    string
	seed     uint64
	faults   bool
	bounds   environment.Bounds
}

// dir is where the run's files are, below those of its suite.
func (t task) dir() string {
	last := fmt.Sprintf("seed-%d", t.seed)
	if !t.faults {
		last += "-calm"
	}
	return path.Join(t.scenario.Name, t.group, last)
}

// run does one run on servers, and writes its files below dir, in place of those of an
// unfinished run. It fails if there is nothing to judge: a server did not start, a fault
// could not be reverted, or ctx has ended.
func (t task) run(ctx context.Context, servers *environment.Servers, dir string) (_ *result.Run, err error) {
	bound := setUpBound + t.bounds.Run + 2*checkBound
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("chaos: the run was not over after %v", bound))
	defer cancel()
	schedule := t.scenario.Faults(t.seed)
	r := t.result(schedule)
	at := filepath.Join(dir, filepath.FromSlash(r.Dir))
	if err := errors.Join(os.RemoveAll(at), os.MkdirAll(at, 0o755)); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(at, result.HistoryFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	trace := history.NewTrace(history.NewRecorder(file))
	env := environment.New(environment.Config{
		Seed: t.seed, Group: t.group, Faults: t.faults, Workload: t.workload, Members: max(t.scenario.Members, 1), Patroni: t.scenario.Patroni,
		Workers: cmp.Or(t.scenario.Workers, 3), TTL: t.ttl(), Unhindered: t.scenario.Unhindered, Bounds: t.bounds, Dir: at, Trace: trace,
	})
	p := &performance{env: env, task: t, schedule: schedule}
	observed, err := p.whole(ctx, servers)
	if err := errors.Join(err, trace.Err(), context.Cause(ctx)); err != nil {
		return nil, err
	}
	r.Took, r.Failed, r.Wrong = time.Since(r.Started), text(p.checked), text(env.Failed())
	r.Judge(trace.Events(), observed)
	return r, result.Save(dir, r, &observed)
}

// text is the text of an error; empty if there is none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// result is the run before anything has happened.
func (t task) result(schedule []fault.Step) *result.Run {
	r := &result.Run{
		Scenario: t.scenario.Name, Family: t.scenario.Family, Group: t.group, Seed: t.seed, Faults: t.faults, Started: time.Now(), Dir: t.dir(),
		Progress: workload.ProgressBound, Stock: t.workload.Name() == workload.Stock{}.Name(), Workload: t.workload.Name(),
	}
	switch {
	case t.group != result.Fenced:
		r.Breaks = check.OfData()
	case t.faults:
		r.Requires = t.scenario.Requires
	}
	for _, step := range schedule {
		r.Schedule = append(r.Schedule, result.Step{At: step.At, For: step.For, Fault: step.Fault.String()})
	}
	return r
}

// UsualRun is about how long a run takes, with the start of its workers and its checks.
const UsualRun = 10 * time.Second

// setUpBound bounds a run before its workers work, and checkBound after.
const (
	setUpBound = 3 * time.Minute
	checkBound = 2 * time.Minute
)

// performance is a run while it goes on.
type performance struct {
	env      *environment.Environment
	task     task
	schedule []fault.Step
	checked  error // what the workload's Check said
}

// ttl is the time to live of locks. Without faults it is so long that a stall of the machine, which
// is a fault as well, takes no lock. In scripts no operations race, so none would notice.
func (t task) ttl() time.Duration {
	if !t.faults && t.scenario.Script == nil {
		return 10 * workload.TTL
	}
	return workload.TTL
}

// whole does the run from its beginning to its end, and returns what was observed.
func (p *performance) whole(ctx context.Context, servers *environment.Servers) (_ observe.Observation, err error) {
	defer func() { err = errors.Join(err, p.env.TearDown(context.WithoutCancel(ctx))) }()
	if err := p.env.SetUp(ctx, servers); err != nil {
		return observe.Observation{}, err
	}
	observer, err := p.env.Observe(ctx)
	if err != nil {
		return observe.Observation{}, err
	}
	err = p.env.StartWorkers(ctx)
	if err == nil {
		err = p.act(ctx)
	}
	if err != nil {
		err = errors.Join(err, p.env.KillWorkers())
	} else {
		err = p.conclude(ctx)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkBound)
	defer cancel()
	observed, finishErr := observer.Finish(late)
	return observed, errors.Join(err, finishErr)
}

// conclude stops the workers, and checks the data. It fails if the workload can't be run.
func (p *performance) conclude(ctx context.Context) error {
	p.env.Fail(p.env.StopWorkers())
	p.env.Trace().Phase(history.PhaseEnd)
	wrong := errors.Join(p.env.Crashes(), p.env.WithoutOutcome())
	if wrong != nil && p.task.group != result.Fenced { // this run says nothing about the control
		return fmt.Errorf("%w under the control %s: there Env.Guard and Env.Locker are nil, and only Env.Do and Hold work: %w", workload.ErrWorkload, p.task.group, wrong)
	}
	p.env.Fail(wrong)
	if p.checked = p.env.OnData(ctx, "Check", p.task.workload.Check); errors.Is(p.checked, environment.ErrHangs) {
		p.env.Fail(p.checked) // it has said nothing of the data
		p.checked = nil
	}
	return nil
}

// act performs a scenario. If the code under test hangs or crashes meanwhile, that is noted
// as a failure of that code, and is not an error.
func (p *performance) act(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, p.task.bounds.Run, fmt.Errorf("%w: the run was not over after %v", environment.ErrHangs, p.task.bounds.Run))
	defer cancel()
	err := p.perform(bounded)
	if ctx.Err() == nil && (errors.Is(err, environment.ErrHangs) || errors.Is(err, environment.ErrProcessEnded) || errors.Is(err, scenario.ErrWrong)) {
		p.env.Fail(err)
		return nil
	}
	return err
}

// perform has the workers work while faults are injected, and then do one more operation on
// every resource.
func (p *performance) perform(ctx context.Context) error {
	p.env.Trace().Phase(history.PhaseLoad)
	happen := func(ctx context.Context) error { return p.env.UnderLoad(ctx, p.schedule) }
	if p.task.scenario.Script != nil {
		happen = func(ctx context.Context) error { return p.task.scenario.Script(ctx, p.env) }
	}
	if err := happen(ctx); err != nil {
		return err
	}
	p.env.FaultsOver()
	p.env.Trace().Phase(history.PhaseFinal)
	return p.env.FinalOperations(ctx)
}
