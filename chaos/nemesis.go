package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// strikeBound bounds how long a fault of a schedule waits for its victim, and
// healBound how long its undoing may take.
const (
	strikeBound = 10 * time.Second
	healBound   = 30 * time.Second
)

// play lets the faults of a schedule happen, each at its time, and returns when the
// last one is healed. An error says that a fault could not be done or undone, so
// that nobody knows what the run was about.
func (s *Stage) play(ctx context.Context, schedule []Step) error {
	errs := make([]error, len(schedule))
	var playing sync.WaitGroup
	for i, step := range schedule {
		playing.Go(func() {
			if wait(ctx, step.At) == nil {
				errs[i] = s.strike(ctx, step)
			}
		})
	}
	playing.Wait()
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// strike does one fault and heals it after its time.
func (s *Stage) strike(ctx context.Context, step Step) error {
	bounded, cancel := context.WithTimeout(ctx, strikeBound)
	defer cancel()
	heal, err := s.inflict(bounded, step.Fault)
	if errors.Is(err, fault.ErrMissed) || heal == nil {
		return nilIfMissed(err)
	}
	_ = wait(ctx, step.For) // healed in any case
	return s.heal(ctx, step.Fault, heal)
}

// inflict does a fault and tells so.
func (s *Stage) inflict(ctx context.Context, f fault.Fault) (heal func(context.Context) error, err error) {
	heal, err = f.Strike(ctx, s)
	switch {
	case errors.Is(err, fault.ErrMissed):
		s.story.tell(history.Event{Kind: history.Note, Name: "missed", Error: fmt.Sprintf("%s: %v", f, err)})
	case err != nil:
		return nil, fmt.Errorf("chaos: %s: %w", f, err)
	default:
		s.story.tell(history.Event{Kind: history.Strikes, Name: f.String()})
	}
	return heal, err
}

// heal undoes a fault and tells so.
func (s *Stage) heal(ctx context.Context, f fault.Fault, heal func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), healBound)
	defer cancel()
	if err := heal(bounded); err != nil {
		return fmt.Errorf("chaos: healing %s: %w", f, err)
	}
	s.story.tell(history.Event{Kind: history.Heals, Name: f.String()})
	return nil
}

func nilIfMissed(err error) error {
	if errors.Is(err, fault.ErrMissed) {
		return nil
	}
	return err
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
