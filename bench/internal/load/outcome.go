package load

import (
	"cmp"
	"slices"
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
	// Held has for each time that a lock was held when that began and ended, in turns.
	Held []int64 `json:",omitempty"`
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
		sum.Held = append(sum.Held, o.Held...)
	}
	return sum
}

// HandOvers returns the times, sorted, from a call that releases a lock to the return of the next call that acquires
// it. overlaps is how often one holder had it before the call that released it began: never, if the lock
// excludes.
func HandOvers(held []int64) (times []time.Duration, overlaps int) {
	type span struct{ acquired, released int64 }
	spans := make([]span, 0, len(held)/2)
	for i := 0; i+1 < len(held); i += 2 {
		spans = append(spans, span{held[i], held[i+1]})
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.acquired, b.acquired) })
	for i := 1; i < len(spans); i++ {
		took := spans[i].acquired - spans[i-1].released
		if took < 0 {
			overlaps++
			continue
		}
		times = append(times, time.Duration(took))
	}
	slices.Sort(times)
	return times, overlaps
}
