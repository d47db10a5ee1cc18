package chaos

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// deathWhileLocking has a worker die at the moment at which its lock is granted. The
// final operations of a run show whether others ever get it.
func (s *Stage) deathWhileLocking(ctx context.Context) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	point := PointAcquired
	if s.Group == "redis-setnx-expire" {
		point = control.AfterSetnx
	}
	w := s.worker(0)
	t, err := w.set(command{Arm: point, Then: fault.ThenDie})
	if err != nil {
		return err
	}
	if _, err := s.Operate(0, Op{Resource: s.sku()}); err != nil {
		return err
	}
	if err := t.sprung(ctx); err != nil {
		return err
	}
	s.story.tell(history.Event{Kind: history.Strikes, Name: "kill " + w.Name() + " at " + point, Process: w.Name()})
	if err := w.Start(ctx); err != nil {
		return err
	}
	s.story.tell(history.Event{Kind: history.Heals, Name: "kill " + w.Name() + " at " + point, Process: w.Name()})
	return nil
}
