package scenario

import (
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// groups is a family with many operations at a time, of which its controls run several in one
// transaction. What breaks that breaks several operations.
func groups() Scenario {
	return Scenario{
		Name: "groups", Family: "groups", Controls: []string{"group-matching", "group-rerun"},
		Summary: "many operations wait at once, half of them batches, while workers are paused, lose leases, and lose COMMITs or their answers",
		Requires: []string{
			check.HitFault + "pause", check.HitFault + "revoke", check.HitFault + "commit-unheard",
			check.HitResolvedApplied,
		},
		Loops: 12, Actions: []string{"do", "once", stock.ActionBatch, stock.ActionBatch},
		Schedule: groupFaults,
	}
}

// groupFaults pauses two workers in mid-transaction, one after the other, and loses the answers to
// COMMITs of the third, and then of all.
func groupFaults(r *rand.Rand) []fault.Step {
	order := r.Perm(3)
	pause := func(worker int) fault.Step {
		return fault.Step{Fault: fault.PauseAt{Worker: worker, Point: workload.PointRead}, For: workload.Between(r, workload.TTL*3/2, 2*workload.TTL)}
	}
	lose := func(worker int, loss fault.Loss) fault.Step {
		return fault.Step{Fault: fault.LoseCommit{Worker: worker, Loss: loss, Operation: true}, For: workload.TTL / 2}
	}
	steps := spread(r, pause(order[0]), 500*time.Millisecond, func() fault.Step {
		return workload.Pick(r,
			lose(order[2], workload.Pick(r, fault.Swallowed, fault.Unheard, fault.Held)),
			lose(r.IntN(3), fault.Unheard),
			fault.Step{Fault: fault.RevokeLease{Index: r.IntN(9)}},
			fault.Step{Fault: fault.Terminate{Worker: r.IntN(3)}})
	})
	second, unheard, revoke := pause(order[1]), lose(order[2], fault.Unheard), fault.Step{Fault: fault.RevokeLease{Index: r.IntN(9)}}
	second.At, unheard.At, revoke.At = workload.TTL, steps[0].At, time.Second
	return append(steps, second, unheard, revoke)
}
