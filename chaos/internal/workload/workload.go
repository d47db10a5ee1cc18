// Package workload is the interface of the code under test: its operations, and the
// environment that they have in a worker process. Package chaos exports the same to users.
package workload

import (
	"context"
	"hash/fnv"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Workload is guarded code under test, with the data that it works on. It is a
// value without state: its methods are called in different processes.
type Workload interface {
	// Name names the workload, uniquely in its binary.
	Name() string
	// Resources are the names of the resources that operations use, at least one.
	Resources() []string
	// Prepare makes tables and data in a database that has at most Fencekit's own
	// schema, fence.
	Prepare(ctx context.Context, db *pgxpool.Pool) error
	// Operate does one operation. It is called in worker processes, from several
	// goroutines. It returns nil if the operation took effect, an error that is
	// guard.ErrUnknownOutcome if that is unknown, and any other error if it had no effect
	// and never will: guard.Do returns just these. If it panics the run is violated. It has
	// to return when ctx ends, which is after a minute.
	Operate(ctx context.Context, env *Env, op Op) error
	// Check checks the data when all operations have ended. Its error says what is wrong.
	Check(ctx context.Context, db *pgxpool.Pool) error
}

// Op is one operation that a run asks for.
type Op struct {
	ID       string // unique in the run
	Resource string // one of the Workload's
	Seed     uint64 // of Rand
	Action   string // what it does, for a Workload that offers several; empty: the Workload decides

	Think Thinking `json:"-"` // of a slow operation
}

// Rand returns a source of the operation's random decisions: always the same for the same
// ID and Seed.
func (op Op) Rand() *rand.Rand { return rand.New(rand.NewPCG(op.Seed, Hash(op.ID))) }

// Hash makes a seed of a text.
func Hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// Described is a Workload that says more about an operation than its Resource.
type Described interface {
	// Describe returns the kind of an operation, and all resources that it uses.
	Describe(op Op) (action string, resources []string)
}

// DescribeByResource is the Describe of a Workload that is not Described.
func DescribeByResource(op Op) (action string, resources []string) {
	return "operate", []string{op.Resource}
}
