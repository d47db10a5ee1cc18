package load

import (
	"cmp"
	"time"
)

// Plan is the measured time, on the clock of package clock.
type Plan struct{ Start, End int64 }

// Outcome is what one worker, or several together, did.
type Outcome struct {
	Err string `json:",omitempty"`
	// Operations ended within the measured time; Succeeded beside it too. Abandoned ones were
	// cut off at the end, because they waited for too long.
	Operations, Succeeded, Abandoned int64
	Elapsed                          time.Duration // the measured time
	Latency                          []time.Duration
	CPU                              time.Duration
	Allocations                      int64
}

// Together adds up what the processes of one cell did.
func Together(all []Outcome) Outcome {
	var sum Outcome
	for _, o := range all {
		sum.Err = cmp.Or(sum.Err, o.Err)
		sum.Operations += o.Operations
		sum.Succeeded += o.Succeeded
		sum.Abandoned += o.Abandoned
		sum.Elapsed = max(sum.Elapsed, o.Elapsed)
		sum.Latency = append(sum.Latency, o.Latency...)
		sum.CPU += o.CPU
		sum.Allocations += o.Allocations
	}
	return sum
}
