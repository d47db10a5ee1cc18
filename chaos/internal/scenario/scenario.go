// Package scenario has what goes wrong in runs, as a table: families of random faults
// under load, and scripts. A script works with an Environment.
package scenario

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// Scenario is what goes wrong while a workload works.
type Scenario struct {
	Name   string
	Family string
	// Story says in a sentence what happens.
	Story string
	// Requires are the hits (check.Hits) that a run must have to show anything.
	Requires []string
	// Members is how many members etcd has; default 1.
	Members int
	// Workers is how many worker processes there are; default 3.
	Workers int
	// TTL is the time to live of its locks; default TTL.
	TTL time.Duration
	// Lockers is how many lockers, each with a Guard of its own, the operations of a
	// worker process use in turn; default 1.
	Lockers int
	// Unhindered has nothing but the fence in the way of a late transaction: it may
	// stand still for longer than a lock lives, and no worker has the right to end
	// another's.
	Unhindered bool
	// Stock is what there is of each resource in the built-in workload; default
	// plenty.
	Stock int
	// Controls are the names of the controls that run it too, since its faults are
	// what breaks them.
	Controls []string

	// Schedule makes the faults under load, from a source of its own. A scenario has
	// this or Script.
	Schedule func(random *rand.Rand) []fault.Step
	// Script says what each worker does, step by step.
	// It fails with ErrWrong if what is tested did not do as it has to.
	Script func(ctx context.Context, env Environment) error
}

// All returns all scenarios.
func All() []Scenario { return slices.Concat(families(), scripts) }

// Faults makes the scenario's faults from a seed: always the same.
func (s Scenario) Faults(seed uint64) []fault.Step {
	if s.Schedule == nil {
		return nil
	}
	return s.Schedule(rand.New(rand.NewPCG(seed, workload.Hash(s.Name))))
}
