package environment

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/clock"
)

// Load of a run with a schedule.
const (
	loadLoops = 2 // goroutines of each worker
	loadPace  = 25 * time.Millisecond
	loadTail  = time.Second // of load after the last fault is reverted
)

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
