package result

import (
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/check"
	"github.com/fencekit/fencekit/chaos/history"
	"github.com/fencekit/fencekit/chaos/observe"
)

// Fenced is the Group of runs under the framework. The others are controls.
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
	Hits     map[string]int  `json:"hits"`      // what the run met, and how often
	Schedule []Step          `json:"schedule"`  // of faults, made from the seed
	Progress time.Duration   `json:"progress"`  // bound of I9, ns
	Meet     []string        `json:"meet"`      // hits that it had to have
	Stock    bool            `json:"stock"`     // the built-in workload's data was seen
	Workload string          `json:"workload"`  // its name
	Failed   string          `json:"failed"`    // what the workload's own check said; empty if nothing
}

// String names a run for people, as "pause-claimed, redlock, seed 7".
func (r *Run) String() string {
	name := fmt.Sprintf("%s, %s, seed %d", r.Scenario, r.Group, r.Seed)
	if !r.Faults {
		name += ", without faults"
	}
	return name
}

// Judge sets what the run comes to by its history, in the order of its times, and
// by what was observed of it: Verdict, Reason, Findings, Counts, Hits, Latency and
// HandOver. Everything that it goes by is kept, so it can be judged again.
func (r *Run) Judge(events []history.Event, observed observe.Observation) {
	record := r.record(events, observed)
	r.Findings, r.Counts, r.Hits = check.All(record), check.Count(record), check.Hits(record)
	r.Latency, r.HandOver = latency(record), handOver(record)
	r.Verdict, r.Reason = verdictOf(r.Findings)
}

// record is what the run is judged by.
func (r *Run) record(events []history.Event, observed observe.Observation) *check.Record {
	return &check.Record{
		Fenced: r.Group == Fenced, Stock: r.Stock, Progress: r.Progress, Meet: r.Meet,
		Events: events, Observed: observed, Workload: r.Failed,
	}
}

// Counts are figures of a run.
type Counts = check.Counts

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration `json:"at"`  // ns from the beginning of the load
	For   time.Duration `json:"for"` // ns until it is healed; 0 if there is nothing to heal
	Fault string        `json:"fault"`
}
