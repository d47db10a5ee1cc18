package check

import (
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// Record is all that a run is judged by.
type Record struct {
	Fenced   bool                // by the framework; a control otherwise
	Stock    bool                // the data is that of the built-in workload, so that Effects and Stocks are known
	Progress time.Duration       // within which every resource has to make progress once the faults are over (I9)
	Meet     []string            // the hits that the run was meant to have (I11)
	Events   []history.Event     // in the order of their times
	Observed observe.Observation // from outside
	Workload string              // why the workload's own check failed; empty if it didn't
	Wrong    string              // what else was wrong with what is tested, as that it hung; empty if nothing
}

// Status says what became of a property in a run.
type Status string

// The statuses.
const (
	Held       Status = "held"
	Violated   Status = "violated"
	Unchecked  Status = "unchecked"  // what the check needs is missing: the run is inconclusive
	Irrelevant Status = "irrelevant" // the property says nothing about this kind of run
)

// Finding is what became of one property in a run.
type Finding struct {
	Property string   `json:"property"` // as "I3", or "workload"
	Title    string   `json:"title"`    // what it says, in a few words
	Status   Status   `json:"status"`
	Detail   string   `json:"detail"`   // with figures: what was looked at, or what is wrong
	Examples []string `json:"examples"` // counterexamples, the first few
}
