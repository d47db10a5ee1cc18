package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// unhindered stalls a worker once at each point of its transaction. Elsewhere a stalled
// one has been ended when its worker goes on, by its own bounds or by whoever has the
// lock then, or its context has: nothing is left for the seal to refuse.
func (s *script) unhindered(ctx context.Context) error {
	for _, point := range []string{workload.PointBegun, workload.PointRead, workload.PointWritten} {
		if err := s.stall(ctx, stock.ActionHeedless, point, expiry); err != nil {
			return err
		}
	}
	s.FaultsOver()
	return s.sellOut(ctx)
}
