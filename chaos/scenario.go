package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
)

// Scenario is what goes wrong while a workload works.
type Scenario struct {
	Name   string
	Family string
	// Story says in a sentence what happens.
	Story string
	// Meet are the hits (check.Hits) that a run must have to show anything.
	Meet []string
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
	Schedule func(random *rand.Rand) []Step
	// Script says what each worker does, step by step.
	Script func(ctx context.Context, s *Stage) error
}

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration // from the beginning of the load
	For   time.Duration // until it is healed
	Fault fault.Fault
}

// TTL is the time to live of locks in a run, unless its scenario has one of its own:
// what is paused for longer has lost them.
const TTL = 2 * time.Second

// progressBound is within which every resource has to make progress once the
// faults are over: TTL, the bounds of transactions and eviction, and what a busy
// machine takes.
const progressBound = 20 * time.Second
