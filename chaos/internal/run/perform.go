package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// performance is a run while it goes on.
type performance struct {
	env      *environment.Environment
	task     task
	schedule []fault.Step
	checked  error // what the workload's Check said
}

// workers are the worker processes that the scenario asks for.
func (p *performance) workers() environment.Workers {
	sc := p.task.scenario
	w := environment.Workers{Number: sc.Workers, TTL: p.task.ttl(), Lockers: sc.Lockers, Unhindered: sc.Unhindered, Loops: sc.Loops, Processors: sc.Processors}
	if s, ok := p.task.workload.(stock.Stock); ok {
		w.Actions, w.Lots = sc.Actions, s.Lots
	}
	return w
}

// ttl is the time to live of locks. Without faults it is so long that a stall of the machine, which
// is a fault as well, takes no lock. In scripts no operations race, so none would notice.
func (t task) ttl() time.Duration {
	ttl := cmp.Or(t.scenario.TTL, workload.TTL)
	if !t.faults && t.scenario.Script == nil {
		ttl *= 10
	}
	return ttl
}

// whole does the run from its beginning to its end, and returns what was observed.
func (p *performance) whole(ctx context.Context, servers *environment.Servers) (_ observe.Observation, err error) {
	defer func() { err = errors.Join(err, p.env.TearDown(context.WithoutCancel(ctx))) }()
	if err := p.env.SetUp(ctx, servers, max(p.task.scenario.Members, 1)); err != nil {
		return observe.Observation{}, err
	}
	observer, err := p.env.Observe(ctx)
	if err != nil {
		return observe.Observation{}, err
	}
	err = p.env.StartWorkers(ctx, p.workers())
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
