package result

import (
	"time"

	"github.com/fencekit/fencekit/chaos/check"
)

// Verdict is what a run, or several, have shown.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"         // every property held, and the run met what it was meant to meet
	Violated     Verdict = "violated"     // a property was violated
	Inconclusive Verdict = "inconclusive" // nothing was violated, but the run shows nothing
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
	Dir      string        `json:"dir"`  // of its files, relative to the suite's

	Verdict  Verdict         `json:"verdict"`
	Reason   string          `json:"reason"` // of the verdict, one sentence
	Findings []check.Finding `json:"findings"`
	Counts   Counts          `json:"counts"`
	Hits     map[string]int  `json:"hits"`     // what the run met, and how often
	Schedule []Step          `json:"schedule"` // of faults, made from the seed
	Progress time.Duration   `json:"progress"` // bound of I9, ns
	Meet     []string        `json:"meet"`     // hits that it had to have
	Stock    bool            `json:"stock"`    // the built-in workload's data was seen
	Workload string          `json:"workload"` // its name
	Failed   string          `json:"failed"`   // what the workload's own check said; empty if nothing
}

// Counts are figures of a run.
type Counts struct {
	Operations int `json:"operations"`
	OK         int `json:"ok"`
	Failed     int `json:"failed"`
	Unknown    int `json:"unknown"` // that stayed so, or were cut off with their process
	Refusals   int `json:"refusals"`
	Faults     int `json:"faults"`   // that struck
	Oversold   int `json:"oversold"` // units
	Lost       int `json:"lost"`     // updates that somebody else's overwrote
}

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration `json:"at"`  // ns from the beginning of the load
	For   time.Duration `json:"for"` // ns until it is healed; 0 if there is nothing to heal
	Fault string        `json:"fault"`
}
