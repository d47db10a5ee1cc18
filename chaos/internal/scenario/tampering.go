package scenario

import (
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// tampering changes entries of the history while it is written. Verification has to find each
// (I13), and no other. It breaks no control: none has a history.
func tampering() Scenario {
	return Scenario{
		Name: "tampering", Family: "tampering",
		Summary:  "the owner of the history changes entries of it, while workers are killed and lose leases; verification has to find each change",
		Requires: []string{check.AtLeast(2, check.HitFault+"tamper"), check.HitFault + "kill"},
		Schedule: func(r *rand.Rand) []fault.Step {
			steps := spread(r, fault.Step{Fault: fault.Tamper{}}, 700*time.Millisecond, func() fault.Step {
				f := workload.Pick[fault.Fault](r, fault.Tamper{Index: r.IntN(10)}, fault.RevokeLease{Index: r.IntN(27)}, fault.Terminate{Worker: r.IntN(3)})
				return fault.Step{Fault: f}
			})
			return append(steps,
				fault.Step{Fault: fault.Kill{Worker: r.IntN(3)}, At: time.Second, For: 500 * time.Millisecond},
				fault.Step{Fault: fault.Tamper{Index: r.IntN(10)}, At: 2 * time.Second})
		},
	}
}
