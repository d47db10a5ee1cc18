package workload

import (
	"time"

	"github.com/fencekit/fencekit/storage/postgres"
)

// TTL is the time to live of locks in a run, unless its scenario has its own: a process
// that is paused for longer loses them.
const TTL = 2 * time.Second

// ProgressBound is the time within which every resource has to make progress after the
// faults: TTL, the bounds of transactions and eviction, and what a busy machine takes.
const ProgressBound = 20 * time.Second

// StoreBounds bound a transaction, below the lease's time to live, as postgres.Config
// asks for.
var StoreBounds = postgres.Config{LockTimeout: time.Second, StatementTimeout: 1500 * time.Millisecond, IdleTimeout: 1500 * time.Millisecond, NetworkTimeout: 2 * time.Second}
