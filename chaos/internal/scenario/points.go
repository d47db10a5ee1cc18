package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// pointByPoint has a worker stand still at every stage of every kind of operation
// until its lease is over and another worker has taken over.
func (s *script) pointByPoint(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	for _, action := range stock.Actions {
		for _, point := range workload.Points {
			// The other one has the lock first, so that it has to be acquired.
			if err := s.succeed(ctx, 1); err != nil {
				return err
			}
			op, err := s.stopAt(ctx, 0, workload.Op{Resource: s.sku(), Action: action}, s.OperationBound(), point)
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
