package chaos

import (
	"context"
	"errors"
)

// actions are the ways in which the built-in workload sells.
var actions = []string{"do", "hold", "all", "once"}

// pointByPoint has a worker stand still at every stage of every kind of operation
// until its lease is over and another worker has taken over.
func (s *Stage) pointByPoint(ctx context.Context) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	for _, action := range actions {
		for _, point := range stages {
			// The other one has the lock first, so that it has to be acquired.
			if err := s.succeed(ctx, 1); err != nil {
				return err
			}
			op, err := s.stopAt(ctx, 0, Op{Resource: s.sku(), Action: action}, s.bounds.op, point)
			if err != nil {
				return err
			}
			if err := errors.Join(s.endLeases(ctx), s.succeed(ctx, 1), s.resume(0, point), finish(ctx, op)); err != nil {
				return err
			}
		}
	}
	return nil
}
