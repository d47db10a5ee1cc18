package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var killWhileLocking = Scenario{
	Name: "kill-while-locking", Family: "kills", Controls: []string{"redis-setnx-expire"},
	Summary:  "a worker is killed when it has just got the lock, and restarts; the others have to get the lock in time",
	Requires: []string{check.HitFault + "kill"},
	Script:   steps((*script).killWhileLocking),
}

// killWhileLocking kills a worker at the moment at which its lock is granted. The final
// operations of the run show whether others get the lock.
func (s *script) killWhileLocking(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	point := workload.PointAcquired
	if s.Group() == "redis-setnx-expire" {
		point = control.AfterSetnx
	}
	w := s.Process(0)
	t, err := w.SetTrap(point, 0, fault.ThenKill)
	if err != nil {
		return err
	}
	if _, err := s.Operate(0, workload.Op{Resource: s.sku()}); err != nil {
		return err
	}
	if err := t.Sprung(ctx); err != nil {
		return err
	}
	s.Trace().Record(history.Event{Kind: history.Injected, Name: "kill " + w.Name() + " at " + point, Process: w.Name()})
	if err := w.Start(ctx); err != nil {
		return err
	}
	s.Trace().Record(history.Event{Kind: history.Reverted, Name: "kill " + w.Name() + " at " + point, Process: w.Name()})
	return nil
}
