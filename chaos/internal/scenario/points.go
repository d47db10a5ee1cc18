package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/storage"
)

var pauseAtEveryPoint = Scenario{
	Name: "pause-at-every-point", Family: "points", Workers: 2,
	Summary: "a worker is paused at each point of each kind of operation, one after another, until its lease has ended and another has taken over",
	Requires: []string{
		check.HitFault + "pause", check.HitPaused + workload.PointAcquired, check.HitPaused + workload.PointClaimed, check.HitPaused + workload.PointBegun,
		check.HitPaused + workload.PointRead, check.HitPaused + workload.PointWritten, check.HitPaused + workload.PointCommit,
		check.HitRejected + string(storage.StageClaim), check.HitRejected + string(storage.StageBegin), check.HitRejected + string(storage.StageRun), check.HitEndedStale + string(storage.StageSeal),
	},
	Script: steps((*script).pointByPoint),
}

// pointByPoint pauses a worker at every point of every kind of operation until its lease
// has ended and another worker has taken over.
func (s *script) pointByPoint(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	for _, action := range stock.Actions {
		for _, point := range workload.Points {
			// The other worker has the lock first, so that this one has to acquire it.
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
