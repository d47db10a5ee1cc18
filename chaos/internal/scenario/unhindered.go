package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/storage"
)

var unhinderedWriter = Scenario{
	Name: "unhindered-writer", Family: "stalls", Stock: saleStock, Unhindered: true,
	Summary:  "a worker is paused in a transaction that no successor may evict, for longer than its lock's time to live, and commits when another has the lock and has read: only the seal rejects it",
	Requires: []string{check.HitFault + "pause", check.HitPaused + workload.PointBegun, check.HitPaused + workload.PointRead, check.HitPaused + workload.PointWritten, check.HitRejected + string(storage.StageBegin), check.AtLeast(2, check.HitRejected+string(storage.StageSeal))},
	Script:   steps((*script).unhindered),
}

// unhindered stalls a worker once at each point of its transaction. In other scenarios the
// transaction of a paused worker ends before it goes on, by its own bounds, by its
// successor's eviction, or by its context: nothing is left for the seal to reject. Paused
// before its first statement it has sent nothing, and the begin check rejects it.
func (s *script) unhindered(ctx context.Context) error {
	for _, point := range []string{workload.PointBegun, workload.PointRead, workload.PointWritten} {
		if err := s.stall(ctx, stock.ActionHeedless, point, expiry); err != nil {
			return err
		}
	}
	s.FaultsOver()
	return s.sellOut(ctx)
}
