package check

import (
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// Record is what a run is checked by.
type Record struct {
	Fenced   bool                // by Fencekit; a control otherwise
	Stock    bool                // the data is that of the built-in workload, so that Effects and Stocks are known
	Progress time.Duration       // the time within which every resource has to make progress after the faults (I9)
	Requires []string            // the hits that the scenario requires (I11)
	Events   []history.Event     // in the order of their times
	Observed observe.Observation // from outside
	Workload string              // why the workload's own check failed; empty if it didn't
	Wrong    string              // what else was wrong with the code under test, for example that it hung; empty if nothing
}

// Status is the result of a property's check.
type Status string

// The statuses.
const (
	Held       Status = "held"
	Violated   Status = "violated"
	Unchecked  Status = "unchecked"  // the check lacks something that it needs: the run is inconclusive
	Irrelevant Status = "irrelevant" // the property doesn't apply to this kind of run
)

// Finding is the result of checking one property of a run.
type Finding struct {
	Property string   `json:"property"` // as "I3", or "workload"
	Title    string   `json:"title"`    // what it says, in a few words
	Status   Status   `json:"status"`
	Detail   string   `json:"detail"`   // with figures: what was checked, or what is wrong
	Examples []string `json:"examples"` // counterexamples, the first few
}
