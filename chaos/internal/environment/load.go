package environment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/clock"
)

// loadTail is for how long the load goes on after the last fault is reverted.
const loadTail = time.Second

// UnderLoad starts the load of all workers, and injects the faults of the schedule
// meanwhile.
func (s *Environment) UnderLoad(ctx context.Context, schedule []fault.Step) error {
	for _, w := range s.workers {
		if err := w.Command(worker.Command{Load: true}); err != nil {
			return err
		}
	}
	if s.cfg.Faults {
		if err := s.play(ctx, schedule); err != nil {
			return err
		}
	} else if err := clock.Sleep(ctx, lengthOf(schedule)); err != nil {
		return err
	}
	s.FaultsOver()
	if err := clock.Sleep(ctx, loadTail); err != nil {
		return err
	}
	return s.endLoad(ctx)
}

// FaultsOver records that all faults are over; once.
func (s *Environment) FaultsOver() {
	s.over.Do(func() { s.cfg.Trace.Phase(history.PhaseFaultsOver) })
}

// lengthOf is when the last fault of a schedule is reverted.
func lengthOf(schedule []fault.Step) (length time.Duration) {
	for _, step := range schedule {
		length = max(length, step.At+step.For)
	}
	return length
}

// endLoad ends the load, and returns when every operation has ended.
func (s *Environment) endLoad(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Bounds.Operation+s.cfg.Bounds.Grace, ErrHangs)
	defer cancel()
	quiet := s.cfg.Trace.Listen(func(e history.Event) bool {
		return e.Kind == history.Note && e.Name == worker.NoteQuiet || e.Kind == history.Ends
	})
	defer quiet.Stop()
	for _, w := range s.workers {
		if err := w.Command(worker.Command{Quiet: true}); err != nil {
			return err
		}
	}
	for range s.workers {
		e, err := quiet.Next(ctx)
		if err != nil {
			return fmt.Errorf("chaos: operations did not end: %w", err)
		}
		if e.Kind == history.Ends {
			return fmt.Errorf("%w: %s: %s", ErrProcessEnded, e.Process, e.Error)
		}
	}
	return nil
}

// FinalOperations has every worker do one more operation on every resource, one after
// another. The checkers judge whether each succeeds in time.
func (s *Environment) FinalOperations(ctx context.Context) error {
	for number := range s.workers {
		for _, resource := range s.cfg.Workload.Resources() {
			op, err := s.OperateWithin(number, workload.Op{Resource: resource}, workload.ProgressBound)
			if err != nil {
				return err
			}
			if _, err := op.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// injectBound bounds how long a fault of a schedule waits for its victim, and
// revertBound how long reverting it may take.
const (
	injectBound = 10 * time.Second
	revertBound = 30 * time.Second
)

// play injects the faults of a schedule, each at its time, and returns when the last one is
// reverted. It fails if a fault could not be injected or reverted: then the run is
// inconclusive.
func (s *Environment) play(ctx context.Context, schedule []fault.Step) error {
	errs := make([]error, len(schedule))
	var playing sync.WaitGroup
	for i, step := range schedule {
		playing.Go(func() {
			if clock.Sleep(ctx, step.At) == nil {
				errs[i] = s.injectStep(ctx, step)
			}
		})
	}
	playing.Wait()
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// injectStep injects one fault and reverts it after its time.
func (s *Environment) injectStep(ctx context.Context, step fault.Step) error {
	bounded, cancel := context.WithTimeout(ctx, injectBound)
	defer cancel()
	revert, err := s.Inject(bounded, step.Fault)
	if errors.Is(err, fault.ErrMissed) || revert == nil {
		return fault.IgnoreMissed(err)
	}
	_ = clock.Sleep(ctx, step.For) // if ctx ends the fault is reverted at once
	return s.Revert(ctx, step.Fault, revert)
}

// Inject injects a fault and records it.
func (s *Environment) Inject(ctx context.Context, f fault.Fault) (revert func(context.Context) error, err error) {
	revert, err = f.Inject(ctx, s)
	switch {
	case errors.Is(err, fault.ErrMissed):
		s.cfg.Trace.Record(history.Event{Kind: history.Note, Name: "missed", Error: fmt.Sprintf("%s: %v", f, err)})
	case err != nil:
		return nil, fmt.Errorf("chaos: %s: %w", f, err)
	default:
		s.cfg.Trace.Record(history.Event{Kind: history.Injected, Name: f.String()})
	}
	return revert, err
}

// Revert reverts a fault and records it.
func (s *Environment) Revert(ctx context.Context, f fault.Fault, revert func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), revertBound)
	defer cancel()
	if err := revert(bounded); err != nil {
		return fmt.Errorf("chaos: reverting %s: %w", f, err)
	}
	s.cfg.Trace.Record(history.Event{Kind: history.Reverted, Name: f.String()})
	return nil
}
