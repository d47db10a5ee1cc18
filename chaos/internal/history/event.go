package history

// Kind says what an event tells.
type Kind string

// What workers tell of their operations.
const (
	Invoke  Kind = "invoke"  // an operation begins
	OK      Kind = "ok"      // it took effect
	Fail    Kind = "fail"    // it took no effect and never will
	Unknown Kind = "unknown" // it did or it didn't
	Answer  Kind = "answer"  // what became of an unknown one, asked later: Applied
)

// What workers tell of their Guards, and of themselves.
const (
	Acquired Kind = "acquired" // the lock service granted the resource
	Claimed  Kind = "claimed"  // the database has heard of the grant
	Refused  Kind = "refused"  // the fence refused the grant; Error says why that could not be recorded
	Lost     Kind = "lost"     // the lease was lost
	Released Kind = "released" // the grant was given up
	Resolved Kind = "resolved" // a COMMIT in doubt was asked about: Applied
	Reached  Kind = "reached"  // an armed Point was reached, and its fault is about to strike
)

// What the run itself tells.
const (
	Phase   Kind = "phase"   // the run enters Name: one of the phases below
	Strikes Kind = "strikes" // the fault Name was done to Process
	Heals   Kind = "heals"   // it was undone
	Starts  Kind = "starts"  // the worker process Process runs
	Ends    Kind = "ends"    // it has ended; Error says how, unless it was asked to
	Note    Kind = "note"    // Name says something worth reading
)

// The phases of a run, by Event.Name.
const (
	PhaseLoad   = "load"   // workers work
	PhaseHealed = "healed" // all faults are over
	PhaseFinal  = "final"  // every resource has to be worked on once more
	PhaseEnd    = "end"    // nobody works any more
)

// NoteCompacted is the Name of a note that a watch of etcd's had to be set up anew,
// since what it had still to show was compacted.
const NoteCompacted = "watch compacted"

// ClassSoldOut is the Class of an operation that failed because there was not
// enough: nothing stood in its way.
const ClassSoldOut = "sold out"

// What a process does at a point that it has reached, by Event.Name.
const (
	ThereStop = "stop"
	ThereDie  = "die"
)

// Runner is the Process of what the run itself tells.
const Runner = "run"

// Event is one line of a history. Which fields it has depends on its kind.
type Event struct {
	At      int64  `json:"at"` // ns of the machine's monotonic clock
	Kind    Kind   `json:"kind"`
	Process string `json:"process"`        // the worker that tells, or that is told of
	Name    string `json:"name,omitempty"` // of a phase or a fault, or what is done at a point

	Op        string   `json:"op,omitempty"`        // the operation's id, unique in the run
	Action    string   `json:"action,omitempty"`    // its kind, as "do" or "hold"
	Resources []string `json:"resources,omitempty"` // what it is about
	Class     string   `json:"class,omitempty"`     // of Error, for counting: "stale token", "40001", …
	Error     string   `json:"error,omitempty"`
	Applied   bool     `json:"applied,omitempty"`

	Resource string `json:"resource,omitempty"` // of the grant
	Epoch    int64  `json:"epoch,omitempty"`
	Token    int64  `json:"token,omitempty"`
	Holder   string `json:"holder,omitempty"`
	Current  int64  `json:"current,omitempty"` // token that the refused one was refused for
	Reason   string `json:"reason,omitempty"`  // of a refusal or a loss
	Stage    string `json:"stage,omitempty"`   // of a refusal
	Met      string `json:"met,omitempty"`     // what had ended the transaction before it was found refused; empty if the database refused it
	Point    string `json:"point,omitempty"`   // that was reached
}
