package observe

import "github.com/fencekit/fencekit/audit"

// Observation is what was observed of a run from outside.
type Observation struct {
	Locks      Locks       `json:"locks"`
	Commits    []Commit    `json:"commits"`    // in the order of the write-ahead log
	Entries    []Entry     `json:"entries"`    // Fencekit's own history
	Rejections []Rejection `json:"rejections"` // as Fencekit recorded them
	Effects    []Effect    `json:"effects"`    // of operations, in the data
	Stocks     []Stock     `json:"stocks"`     // at the end
	Left       []string    `json:"left"`       // lock keys that still exist when all workers have closed
	// Verified is what audit.Database.Verify says of Fencekit's history; nil if there is none.
	Verified *audit.Report `json:"verified"`
}

// Locks is what a watch of the lock keys has shown.
type Locks struct {
	Events []LockEvent `json:"events"` // in the order of revisions
	Gap    string      `json:"gap"`    // why events may be missing; empty if none is
}

// LockEvent is a lock key that was created, written again, or deleted.
type LockEvent struct {
	At       int64  `json:"at"` // when the observer saw it: ns of the machine's monotonic clock
	Resource string `json:"resource"`
	Revision int64  `json:"revision"` // of this event
	Created  int64  `json:"created"`  // create revision of the key: the token
	Lease    int64  `json:"lease"`    // of the key, unless deleted; 0 if it has none
	Holder   string `json:"holder"`   // in the key's value, unless deleted; empty if it has none
	Gone     bool   `json:"gone"`     // deleted
}

// Commit is one transaction in the write-ahead log.
type Commit struct {
	XID     uint64   `json:"xid"` // without its epoch, as everywhere in this package: 32 bits
	Changes []Change `json:"changes"`
}

// Change is one row that a transaction changed.
type Change struct {
	Table  string            `json:"table"`  // with its schema
	Action string            `json:"action"` // insert, update, delete or truncate
	Row    map[string]string `json:"row"`    // new values by column, or a deleted row's key; absent: NULLs, and large values that didn't change
}

// Entry is one position in Fencekit's history of a resource.
type Entry struct {
	Resource string   `json:"resource"`
	Seq      int64    `json:"seq"`
	Kind     string   `json:"kind"` // claim, write or void
	Epoch    int64    `json:"epoch"`
	Token    int64    `json:"token"`
	Holder   string   `json:"holder"`
	XID      uint64   `json:"xid"`
	Ops      []string `json:"ops"` // ids of a write's operations
}

// Rejection is a kind of rejection that Fencekit recorded.
type Rejection struct {
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
	Stage    string `json:"stage"`
	Token    int64  `json:"token"`
	Holder   string `json:"holder"`
	Current  int64  `json:"current"` // token that held the fence
	Count    int64  `json:"count"`
}

// Effect is the row of one operation in the data of one resource.
type Effect struct {
	Order    int64  `json:"order"` // in which it was written, rising within a resource
	Op       string `json:"op"`
	Resource string `json:"resource"`
	Token    int64  `json:"token"` // under which it was written; 0 if there was none
	Quantity int    `json:"quantity"`
	Seen     int    `json:"seen"` // the stock that the operation decided on
	XID      uint64 `json:"xid"`  // of the commit that wrote it; 0 if the log doesn't show it
}

// Stock is the stock of a resource.
type Stock struct {
	Resource  string `json:"resource"`
	Initial   int    `json:"initial"`
	Available int    `json:"available"`
}
