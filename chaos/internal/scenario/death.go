package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// deathWhileLocking has a worker die at the moment at which its lock is granted. The
// final operations of a run show whether others ever get it.
func (s *script) deathWhileLocking(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	point := workload.PointAcquired
	if s.Group() == "redis-setnx-expire" {
		point = control.AfterSetnx
	}
	w := s.Process(0)
	t, err := w.SetTrap(point, 0, fault.ThenDie)
	if err != nil {
		return err
	}
	if _, err := s.Operate(0, workload.Op{Resource: s.sku()}); err != nil {
		return err
	}
	if err := t.Sprung(ctx); err != nil {
		return err
	}
	s.Trace().Record(history.Event{Kind: history.Strikes, Name: "kill " + w.Name() + " at " + point, Process: w.Name()})
	if err := w.Start(ctx); err != nil {
		return err
	}
	s.Trace().Record(history.Event{Kind: history.Heals, Name: "kill " + w.Name() + " at " + point, Process: w.Name()})
	return nil
}
