package worker

import (
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// Spec is the configuration of a worker process, set when it starts.
type Spec struct {
	Worker     string        `json:"worker"`
	Number     int           `json:"number"` // of the worker, from 0
	Workload   string        `json:"workload"`
	Group      string        `json:"group"` // result.Fenced, or the name of a control
	Etcd       []string      `json:"etcd"`  // endpoints, through this worker's links
	Postgres   string        `json:"postgres"`
	Redis      []string      `json:"redis"`
	Prefix     string        `json:"prefix"` // of the lock keys
	TTL        time.Duration `json:"ttl"`
	Seed       uint64        `json:"seed"`
	Lockers    int           `json:"lockers"`    // and Guards; 0: one
	Unhindered bool          `json:"unhindered"` // see scenario.Scenario
	Loops      int           `json:"loops"`      // goroutines under load, beside those of slow operations
	Within     time.Duration `json:"within"`     // for each operation under load
	Pace       time.Duration `json:"pace"`       // of each
	Actions    []string      `json:"actions"`    // of quick operations under load; empty: the workload decides
	Lots       int           `json:"lots"`       // of each worker (stock.LotsOf), which it sells all at once under load
	Processors int           `json:"processors"` // GOMAXPROCS; 0: the machine's
}

// Command is a command to a running worker, a line of JSON each. The first member that is
// set says what to do.
type Command struct {
	Operate *workload.Op  `json:"operate,omitempty"` // do this
	Again   *workload.Op  `json:"again,omitempty"`   // call this again; recorded as NoteCalledAgain
	Within  time.Duration `json:"within,omitempty"`  // for Operate and Again
	Load    bool          `json:"load,omitempty"`    // start the load
	Quiet   bool          `json:"quiet,omitempty"`   // end the load; recorded as NoteQuiet
	Arm     string        `json:"arm,omitempty"`     // a point
	Skip    int           `json:"skip,omitempty"`    // for Arm: how many awaits to skip
	Then    fault.Then    `json:"then,omitempty"`    // for Arm
	Disarm  bool          `json:"disarm,omitempty"`  // recorded as NoteDisarmed, unless the point was reached
	Stall   bool          `json:"stall,omitempty"`   // stop the world, until the pipe is drained
	Close   bool          `json:"close,omitempty"`   // end
}

// What a worker notes for its run.
const (
	NoteReady       = "ready"
	NoteQuiet       = "quiet"
	NoteDisarmed    = "disarmed"
	NoteStalled     = "the world was stopped"
	NoteCalledAgain = "called again" // with the operation, and its error
)
