package environment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/internal/clock"
)

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
