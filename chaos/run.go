package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// task is one run that is to be done.
type task struct {
	scenario Scenario
	workload Workload
	group    string
	seed     uint64
	faults   bool
	bounds   bounds
}

// dir is where the run's files are, below those of its suite.
func (t task) dir() string {
	last := fmt.Sprintf("seed-%d", t.seed)
	if !t.faults {
		last += "-calm"
	}
	return path.Join(t.scenario.Name, t.group, last)
}

// run does one run in a lane, and leaves its files below dir, in place of those of one
// that was not finished. An error says that there is nothing to judge: a server did not
// start, a fault could not be undone, or ctx has ended.
func (t task) run(ctx context.Context, l *lane, dir string) (_ *result.Run, err error) {
	bound := setUpBound + t.bounds.run + 2*checkBound
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("chaos: the run was not over after %v", bound))
	defer cancel()
	schedule := scheduleOf(t.scenario, t.seed)
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
	s := &Stage{Seed: t.seed, Group: t.group, Faults: t.faults, workload: t.workload, bounds: t.bounds, dir: at, story: &story{recorder: history.NewRecorder(file)}}
	observed, err := s.whole(ctx, l, t.scenario, schedule)
	if err := errors.Join(err, s.story.recorder.Err(), context.Cause(ctx)); err != nil {
		return nil, err
	}
	r.Took, r.Failed, r.Wrong = time.Since(r.Started), text(s.checked), text(errors.Join(s.failed...))
	r.Judge(s.story.all(), observed)
	return r, result.Save(dir, r, file.Name(), &observed)
}

// result is the run before anything has happened.
func (t task) result(schedule []Step) *result.Run {
	r := &result.Run{
		Scenario: t.scenario.Name, Family: t.scenario.Family, Group: t.group, Seed: t.seed, Faults: t.faults, Started: time.Now(), Dir: t.dir(),
		Progress: progressBound, Stock: t.workload.Name() == Stock{}.Name(), Workload: t.workload.Name(),
	}
	switch {
	case t.group != result.Fenced:
		r.Breaks = breaks(t.group)
	case t.faults:
		r.Meet = t.scenario.Meet
	}
	for _, step := range schedule {
		r.Schedule = append(r.Schedule, result.Step{At: step.At, For: step.For, Fault: step.Fault.String()})
	}
	return r
}

// whole lets the run happen from its beginning to its end, and returns what was
// observed.
func (s *Stage) whole(ctx context.Context, l *lane, sc Scenario, schedule []Step) (_ observe.Observation, err error) {
	defer func() { err = errors.Join(err, s.tearDown(context.WithoutCancel(ctx))) }()
	if err := s.setUp(ctx, l, max(sc.Members, 1)); err != nil {
		return observe.Observation{}, err
	}
	observer, err := observe.Start(ctx, s.client, s.prefix, s.dsn)
	if err != nil {
		return observe.Observation{}, err
	}
	err = s.hire(ctx, sc, loadLoops, loadPace)
	if err == nil {
		err = s.act(ctx, sc, schedule)
	}
	if err != nil {
		err = errors.Join(err, s.abandon())
	} else {
		err = s.conclude(ctx)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkBound)
	defer cancel()
	observed, finishErr := observer.Finish(late)
	return observed, errors.Join(err, finishErr)
}

// conclude ends the workers' work, and looks at what they have left. It fails if the
// workload can't be run.
func (s *Stage) conclude(ctx context.Context) error {
	s.fails(s.dismiss())
	s.story.phase(history.PhaseEnd)
	wrong := errors.Join(s.crashes(), s.unfit())
	if wrong != nil && s.Group != result.Fenced { // nobody knows what that control would have come to
		return fmt.Errorf("%w under the control %s: there Env.Guard and Env.Locker are nil, and only Env.Do, DoAll and Hold work: %w", ErrWorkload, s.Group, wrong)
	}
	s.fails(wrong)
	if s.checked = s.onData(ctx, "Check", s.workload.Check); errors.Is(s.checked, errStuck) {
		s.fails(s.checked) // it has said nothing of the data
		s.checked = nil
	}
	return nil
}
