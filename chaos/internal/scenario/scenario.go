// Package scenario has the scenarios of runs, as data: families of random faults under
// load, and scripts, which go step by step.
package scenario

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// Scenario is what goes wrong while a workload runs.
type Scenario struct {
	Name    string
	Family  string
	Summary string // what happens, in a sentence
	// Requires are the hits (check.Hits) without which a run is inconclusive.
	Requires []string
	// Members is how many members etcd has; default 1.
	Members int
	// Patroni makes Postgres the primary of three servers under Patroni, in synchronous mode, which
	// are the run's alone. Such a scenario runs with the built-in workload, or if it is chosen.
	Patroni bool
	// Workers is how many worker processes there are; default 3.
	Workers int
	// Unhindered leaves only the fence to stop a late transaction: the transaction may be
	// idle for longer than a lock's time to live, and no worker has the right to evict
	// another.
	Unhindered bool
	// Stock is what the built-in workload has of each resource; default plenty.
	Stock int
	// Controls are the names of the controls that its faults break, and that run it too.
	Controls []string

	// Schedule makes the faults under load from a random source. A scenario has either
	// Schedule or Script.
	Schedule func(random *rand.Rand) []fault.Step
	// Script has the workers do operations, step by step, and injects faults. It fails with
	// ErrWrong if the code under test did not do what it must.
	Script func(ctx context.Context, env *environment.Environment) error
}

// ErrWrong: the code under test did not do what the script expects.
var ErrWrong = errors.New("chaos: not as the script expects")

// Faults makes the scenario's faults from a seed: always the same.
func (s Scenario) Faults(seed uint64) []fault.Step {
	if s.Schedule == nil {
		return nil
	}
	return s.Schedule(rand.New(rand.NewPCG(seed, workload.Hash(s.Name))))
}

// All returns all scenarios, in the order in which they run.
func All() []Scenario {
	return slices.Concat(families(), []Scenario{
		stalledHolder, unhinderedWriter, lostLock, expiryAtEveryAwait, killAtEveryAwait, lateCommit, lostAnswer, failover,
	})
}
