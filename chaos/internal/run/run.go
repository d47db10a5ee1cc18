package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/stock"
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
	env := environment.New(environment.Config{Seed: t.seed, Group: t.group, Faults: t.faults, Workload: t.workload, Patroni: t.scenario.Patroni, Bounds: t.bounds, Dir: at, Trace: trace})
	p := &performance{env: env, task: t, schedule: schedule}
	observed, err := p.whole(ctx, servers)
	if err := errors.Join(err, trace.Err(), context.Cause(ctx)); err != nil {
		return nil, err
	}
	r.Took, r.Failed, r.Wrong = time.Since(r.Started), text(p.checked), text(env.Failed())
	r.Judge(trace.Events(), observed)
	return r, result.Save(dir, r, file.Name(), &observed)
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
		Progress: workload.ProgressBound, Stock: t.workload.Name() == stock.Stock{}.Name(), Workload: t.workload.Name(),
	}
	switch {
	case t.group != result.Fenced:
		r.Breaks = breaks(t.group)
	case t.faults:
		r.Requires = t.scenario.Requires
		if r.Stock {
			r.Requires = slices.Concat(r.Requires, t.scenario.StockRequires)
		}
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
