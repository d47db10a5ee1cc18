package scenario

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// failover breaks locks without a fence although Postgres loses nothing: what was read on the old
// primary is written to the new one.
var failover = Scenario{
	Name: "failover", Family: "patroni", Patroni: true, Workers: 2, Stock: saleStock, Controls: []string{"etcd-mutex", "token-compare"},
	Summary:  "a worker is paused between reading in one transaction and writing in another; the primary of three Postgres servers under Patroni is killed, and a synchronous standby takes over; another worker gets the lock and reads; then both write",
	Requires: []string{check.HitFault + "pause", check.HitFault + "failover", check.HitPaused + workload.PointRead},
	Script: steps(func(s *script, ctx context.Context) error {
		return s.sale(ctx, 1, "hold", workload.PointRead, loss{nothing, s.failOver})
	}),
}

func (s *script) failOver(ctx context.Context) error {
	s.Trace().Record(history.Event{Kind: history.Injected, Name: "failover"})
	return s.FailOver(ctx)
}
