package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/clock"
)

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
		e, err := quiet.Next(ctx)
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
