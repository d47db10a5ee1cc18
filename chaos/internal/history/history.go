// Package history is the record that the processes of a chaos run write, a file of JSON lines.
//
// Its times are the machine's monotonic clock, which all processes share. A worker stamps an event before it
// writes it. An operation has an invoke event and at most one of ok, fail and unknown; one without was cut
// off with its process, and counts as unknown.
//
// What workers record of their Guards is Fencekit's own word: it explains a run, and is checked against what
// package observe saw.
package history

// Kind says what an event is about.
type Kind string

// Of operations.
const (
	Invoke  Kind = "invoke"  // an operation begins
	OK      Kind = "ok"      // it took effect
	Fail    Kind = "fail"    // it took no effect and never will
	Unknown Kind = "unknown" // it did or it didn't
	Answer  Kind = "answer"  // how an unknown one was resolved later: Applied
)

// Of a worker's Guard, and of the worker.
const (
	Acquired Kind = "acquired" // the lock service granted the resource
	Claimed  Kind = "claimed"  // the grant has claimed in the database
	Rejected Kind = "rejected" // the fence rejected the grant; Error says why that could not be recorded
	Lost     Kind = "lost"     // the lease was lost
	Released Kind = "released" // the grant was released
	Resolved Kind = "resolved" // a COMMIT in doubt was resolved: Applied
	Reached  Kind = "reached"  // an armed Point was reached: the process is about to do as Name says
)

// Of the run itself.
const (
	Phase    Kind = "phase"    // the run enters Name: one of the phases below
	Injected Kind = "injected" // the fault Name was injected into Process
	Reverted Kind = "reverted" // it was reverted
	Starts   Kind = "starts"   // the worker process Process runs
	Ends     Kind = "ends"     // it has ended; Error says how, unless it was asked to end
	Note     Kind = "note"     // Name says what else happened
)

// The phases of a run, by Event.Name.
const (
	PhaseLoad       = "load"        // workers work
	PhaseFaultsOver = "faults over" // all are reverted
	PhaseFinal      = "final"       // every resource has to be worked on once more
	PhaseEnd        = "end"         // all workers have ended
)

// What a process does at an armed point that it has reached, by Event.Name.
const (
	ThenPause = "pause"
	ThenKill  = "kill"
)

// Runner is the Process of what the run itself records.
const Runner = "run"

// Event is one line of a history. Which fields it has depends on its kind.
type Event struct {
	At      int64  `json:"at"` // ns of the machine's monotonic clock
	Kind    Kind   `json:"kind"`
	Process string `json:"process"`        // the worker that recorded it, or that it is about
	Name    string `json:"name,omitempty"` // of a phase, a fault or a note, or what the process does at Point

	Op        string   `json:"op,omitempty"`        // the operation's id, unique in the run
	Action    string   `json:"action,omitempty"`    // what it does, as "do" or "hold"
	Resources []string `json:"resources,omitempty"` // that the operation uses
	SoldOut   bool     `json:"sold_out,omitempty"`  // it failed because too little was in stock, which counts as progress
	Error     string   `json:"error,omitempty"`
	Applied   bool     `json:"applied,omitempty"`

	Resource string `json:"resource,omitempty"` // of the grant
	Epoch    int64  `json:"epoch,omitempty"`
	Token    int64  `json:"token,omitempty"`
	Holder   string `json:"holder,omitempty"`
	Current  int64  `json:"current,omitempty"` // the fence's token when it rejected Token
	Reason   string `json:"reason,omitempty"`  // of a rejection or a loss
	Stage    string `json:"stage,omitempty"`   // of a rejection
	Cause    string `json:"cause,omitempty"`   // of a rejection found afterwards: what had ended the transaction; empty if the database rejected it
	Point    string `json:"point,omitempty"`   // that was reached
}
