// Package scenario has the scenarios of runs, as data: families of random faults under
// load, and scripts. A script works with an Environment.
package scenario

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// Scenario is what goes wrong while a workload runs.
type Scenario struct {
	Name   string
	Family string
	// Summary says what happens, in a sentence.
	Summary string
	// Requires are the hits (check.Hits) without which a run is inconclusive.
	Requires []string
	// StockRequires are further ones with the built-in workload.
	StockRequires []string
	// Members is how many members etcd has; default 1.
	Members int
	// Patroni makes Postgres the primary of three servers under Patroni, in synchronous mode, which
	// are the run's alone. Such a scenario runs with the built-in workload, or if it is chosen.
	Patroni bool
	// Workers is how many worker processes there are; default 3.
	Workers int
	// TTL is the time to live of its locks; default workload.TTL.
	TTL time.Duration
	// Lockers is how many lockers, each with a Guard of its own, the operations of a
	// worker process use in turn; default 1.
	Lockers int
	// Unhindered leaves only the fence to stop a late transaction: the transaction may be
	// idle for longer than a lock's time to live, and no worker has the right to evict
	// another.
	Unhindered bool
	// Loops is how many goroutines of a worker process do operations under load; default 2.
	Loops int
	// Actions are those of the built-in workload's operations under load. Default: it decides.
	Actions []string
	// Lots is how many lots each worker has with the built-in workload (stock.LotsOf). Under load
	// it does batches on all of them at once; default none.
	Lots int
	// Processors is GOMAXPROCS of a worker process; default the machine's.
	Processors int
	// Stock is what the built-in workload has of each resource; default plenty.
	Stock int
	// Controls are the names of the controls that its faults break, and that run it too.
	Controls []string

	// Schedule makes the faults under load from a random source. A scenario has either
	// Schedule or Script.
	Schedule func(random *rand.Rand) []fault.Step
	// Script has the workers do operations, step by step, and injects faults. It fails with
	// ErrWrong if the code under test did not do what it must.
	Script func(ctx context.Context, env Environment) error
}

// Faults makes the scenario's faults from a seed: always the same.
func (s Scenario) Faults(seed uint64) []fault.Step {
	if s.Schedule == nil {
		return nil
	}
	return s.Schedule(rand.New(rand.NewPCG(seed, workload.Hash(s.Name))))
}
