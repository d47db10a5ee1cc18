// Package workload has what a run's code under test is: the operations, and the
// environment that they have in a worker process. Package chaos shows users the same.
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
	// Name names the workload, unlike all others of its binary.
	Name() string
	// Resources are the names that operations are about, at least one.
	Resources() []string
	// Prepare makes tables and data in a database that has at most Fencekit's own
	// schema, fence.
	Prepare(ctx context.Context, db *pgxpool.Pool) error
	// Operate does one operation. It is called in worker processes, from several
	// goroutines. It returns nil if the operation took effect, an error that is
	// guard.ErrUnknownOutcome if that is not known, and any other error if it took
	// none and never will: guard.Do's errors are just so. If it panics the run is
	// violated. Give up what takes longer than ctx: it ends after a minute.
	Operate(ctx context.Context, env *Env, op Op) error
	// Check looks at the data when nobody works any more, and says what is wrong.
	Check(ctx context.Context, db *pgxpool.Pool) error
}

// Op is one operation that a run asks for.
type Op struct {
	ID       string // unique in the run
	Resource string // that it is about
	Seed     uint64 // of its own decisions
	Action   string // what it does, for a Workload that offers several; empty: the Workload decides

	Think Thinking `json:"-"` // of one that is to be slow
}

// Rand returns a source of the operation's own decisions: always the same for the
// same operation of the same seed.
func (op Op) Rand() *rand.Rand { return rand.New(rand.NewPCG(op.Seed, Hash(op.ID))) }

// Hash makes a seed of a text.
func Hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// Described is a Workload that says more about an operation than its Resource.
type Described interface {
	// Describe returns the kind of an operation, and all resources that it is about.
	Describe(op Op) (action string, resources []string)
}

// DescribeByResource is the Describe of a Workload that is not Described.
func DescribeByResource(op Op) (action string, resources []string) {
	return "operate", []string{op.Resource}
}
