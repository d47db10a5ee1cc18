package scenario

import (
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// groups is a family whose batches share transactions. What breaks one breaks several
// operations at a time. A Guard has as many groups of batches under way as its process has
// processors, and at least two. With two of them, and more lots than that, batches on different
// lots have to share.
func groups() Scenario {
	return Scenario{
		Name: "groups", Family: "groups", Controls: []string{"group-matching", "group-rerun"},
		Summary: "batches share transactions, also on different resources, beside functions, while workers are paused, lose leases, and lose COMMITs or their answers",
		Requires: []string{
			check.HitFault + "pause", check.HitFault + "revoke", check.HitFault + "commit-unheard",
			check.AtLeast(3, check.HitGrouped), check.HitResolvedApplied,
		},
		StockRequires: []string{check.AtLeast(2, check.HitAcross)},
		Loops:         12, Lots: 6, Processors: 2, Actions: []string{"do", "once", stock.ActionBatch, stock.ActionBatch},
		Schedule: groupFaults,
	}
}

// groupFaults pauses two workers in mid-transaction, one after the other, while leases are
// revoked, and loses the answers to COMMITs of the third. That is slowed down too: its
// transactions then last until all its batches on lots have begun.
func groupFaults(r *rand.Rand) []fault.Step {
	order := r.Perm(3)
	pause := func(worker int, at time.Duration) fault.Step {
		return fault.Step{Fault: fault.PauseAt{Worker: worker, Point: workload.PointRead}, At: at, For: workload.Between(r, 2*workload.TTL, 5*workload.TTL/2)}
	}
	lose := func(worker int, loss fault.Loss) fault.Step {
		return fault.Step{Fault: fault.LoseCommit{Worker: worker, Loss: loss, Operation: true}, For: workload.TTL / 2}
	}
	revoke := func(at time.Duration) fault.Step {
		return fault.Step{Fault: fault.RevokeLease{Index: r.IntN(27)}, At: at}
	}
	steps := spread(r, lose(order[2], fault.Unheard), 500*time.Millisecond, func() fault.Step {
		return workload.Pick(r,
			lose(order[2], workload.Pick(r, fault.Swallowed, fault.Unheard, fault.Held)),
			lose(r.IntN(3), fault.Unheard),
			revoke(0),
			fault.Step{Fault: fault.Terminate{Worker: r.IntN(3)}})
	})
	steps = append(steps, fault.Step{
		Fault: fault.Delay{Worker: order[2], To: fault.ToPostgres, Latency: 30 * time.Millisecond, Jitter: 5 * time.Millisecond},
		At:    500 * time.Millisecond, For: workload.TTL / 2,
	})
	steps = append(steps, pause(order[0], 300*time.Millisecond), pause(order[1], workload.TTL))
	for at := 700 * time.Millisecond; at < 3*time.Second; at += 400 * time.Millisecond {
		steps = append(steps, revoke(at))
	}
	return steps
}
