package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// Load of a run with a schedule.
const (
	loadLoops = 2 // goroutines of each worker
	loadPace  = 25 * time.Millisecond
	loadTail  = time.Second // of load after the last fault is healed
)

// scheduleOf makes a scenario's faults from a seed: always the same.
func scheduleOf(sc Scenario, seed uint64) []Step {
	if sc.Schedule == nil {
		return nil
	}
	return sc.Schedule(rand.New(rand.NewPCG(seed, hash(sc.Name))))
}

// act performs a scenario. What is tested may hang or crash meanwhile: then that is
// what is wrong with it, and no error.
func (s *Stage) act(ctx context.Context, sc Scenario, schedule []Step) error {
	bounded, cancel := context.WithTimeoutCause(ctx, s.bounds.run, fmt.Errorf("%w: the run was not over after %v", errStuck, s.bounds.run))
	defer cancel()
	err := s.perform(bounded, sc, schedule)
	if ctx.Err() == nil && (errors.Is(err, errStuck) || errors.Is(err, errProcessEnded) || errors.Is(err, errWrong)) {
		s.fails(err)
		return nil
	}
	return err
}

// perform lets the workers work while the faults happen, and afterwards work on
// every resource once more.
func (s *Stage) perform(ctx context.Context, sc Scenario, schedule []Step) error {
	s.story.phase(history.PhaseLoad)
	happen := func(ctx context.Context) error { return s.underLoad(ctx, schedule) }
	if sc.Script != nil {
		happen = func(ctx context.Context) error { return sc.Script(ctx, s) }
	}
	if err := happen(ctx); err != nil {
		return err
	}
	s.healed()
	s.story.phase(history.PhaseFinal)
	return s.finally(ctx)
}

// underLoad has all workers work by themselves while the faults happen.
func (s *Stage) underLoad(ctx context.Context, schedule []Step) error {
	for _, w := range s.workers {
		if err := w.command(command{Load: true}); err != nil {
			return err
		}
	}
	if s.Faults {
		if err := s.play(ctx, schedule); err != nil {
			return err
		}
	} else if err := wait(ctx, lengthOf(schedule)); err != nil {
		return err
	}
	s.healed()
	if err := wait(ctx, loadTail); err != nil {
		return err
	}
	return s.quiet(ctx)
}

// healed tells that all faults are over; once.
func (s *Stage) healed() {
	s.healing.Do(func() { s.story.phase(history.PhaseHealed) })
}

// lengthOf is when the last fault of a schedule is healed.
func lengthOf(schedule []Step) (length time.Duration) {
	for _, step := range schedule {
		length = max(length, step.At+step.For)
	}
	return length
}

// quiet ends the load, once every operation has come to its end.
func (s *Stage) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bounds.op+s.bounds.grace, errStuck)
	defer cancel()
	quiet := s.story.listen(func(e history.Event) bool {
		return e.Kind == history.Note && e.Name == noteQuiet || e.Kind == history.Ends
	})
	defer quiet.stop()
	for _, w := range s.workers {
		if err := w.command(command{Quiet: true}); err != nil {
			return err
		}
	}
	for range s.workers {
		e, err := quiet.next(ctx)
		if err != nil {
			return fmt.Errorf("chaos: operations did not come to their end: %w", err)
		}
		if e.Kind == history.Ends {
			return fmt.Errorf("%w: %s: %s", errProcessEnded, e.Process, e.Error)
		}
	}
	return nil
}

// finally has every worker do one more operation on every resource, one after
// another. Whether that succeeds in time is for the checkers to say.
func (s *Stage) finally(ctx context.Context) error {
	for _, w := range s.workers {
		for _, resource := range s.workload.Resources() {
			pending, err := s.operate(w, Op{Resource: resource}, progressBound)
			if err != nil {
				return err
			}
			if _, err := pending.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
