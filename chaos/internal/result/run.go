package result

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// Fenced is the Group of runs under Fencekit. The others are controls.
const Fenced = "fenced"

// Run is one run of a scenario by one group.
type Run struct {
	Scenario string        `json:"scenario"`
	Family   string        `json:"family"`
	Group    string        `json:"group"` // Fenced, or the name of a control
	Seed     uint64        `json:"seed"`
	Faults   bool          `json:"faults"` // false: the same without faults
	Started  time.Time     `json:"started"`
	Took     time.Duration `json:"took"` // ns
	Dir      string        `json:"dir"`  // of its files: three levels below the suite's, separated by slashes

	Verdict  Verdict         `json:"verdict"`
	Reason   string          `json:"reason"` // of the verdict, one sentence
	Findings []check.Finding `json:"findings"`
	Counts   Counts          `json:"counts"`
	Latency  Quantiles       `json:"latency"`   // of operations that took effect
	HandOver Quantiles       `json:"hand_over"` // of a resource from one process to the next that waited
	Hits     map[string]int  `json:"hits"`      // how often each hit happened
	Schedule []Step          `json:"schedule"`  // of faults, made from the seed
	Progress time.Duration   `json:"progress"`  // bound of I9, ns
	Requires []string        `json:"requires"`  // hits without which it is inconclusive
	Stock    bool            `json:"stock"`     // the built-in workload's data was seen
	Workload string          `json:"workload"`  // its name
	Failed   string          `json:"failed"`    // the error of the workload's own check; empty if none
	Wrong    string          `json:"wrong"`     // what else was wrong with the code under test, for example that it hung; empty if nothing
	Breaks   []string        `json:"breaks"`    // of a control: the properties of which it has to violate at least one
}

// String names a run for people, as "pause-claimed, redlock, seed 7".
func (r *Run) String() string {
	name := fmt.Sprintf("%s, %s, seed %d", r.Scenario, r.Group, r.Seed)
	if !r.Faults {
		name += ", without faults"
	}
	return name
}

// Judge sets the results of the run by its history, in the order of its times, and by what
// was observed: Verdict, Reason, Findings, Counts, Hits, Latency and HandOver. Everything
// that they depend on is kept, so a run can be judged again.
func (r *Run) Judge(events []history.Event, observed observe.Observation) {
	record := r.record(events, observed)
	r.Findings, r.Counts, r.Hits = check.All(record), check.Count(record), check.Hits(record)
	r.Latency, r.HandOver = latency(record), handOver(record)
	r.Verdict, r.Reason = verdictOf(r.Findings)
}

// record is what the run is checked by.
func (r *Run) record(events []history.Event, observed observe.Observation) *check.Record {
	return &check.Record{
		Fenced: r.Group == Fenced, Stock: r.Stock, Progress: r.Progress, Requires: r.Requires,
		Events: events, Observed: observed, Workload: r.Failed, Wrong: r.Wrong,
	}
}

// Red reports whether the run of a control has violated a property that it has to violate. A
// violation of another property alone does not count.
func (r *Run) Red() bool {
	return r.Verdict == Violated && slices.ContainsFunc(r.Broke(), func(property string) bool { return slices.Contains(r.Breaks, property) })
}

// Broke are the properties that the run violated.
func (r *Run) Broke() []string {
	var names []string
	for _, f := range r.Findings {
		if f.Status == check.Violated {
			names = append(names, f.Property)
		}
	}
	return names
}

// Counts are figures of a run.
type Counts = check.Counts

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration `json:"at"`  // ns from the beginning of the load
	For   time.Duration `json:"for"` // ns until it is reverted; 0 if there is nothing to revert
	Fault string        `json:"fault"`
}
