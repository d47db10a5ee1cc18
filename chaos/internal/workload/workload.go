// Package workload is the interface of the code under test: its operations, and the
// environment that they have in a worker process. Package chaos exports the same to users.
package workload

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
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

// ErrConfig: a Config is invalid, or the binary doesn't call package chaos as it must.
var ErrConfig = errors.New("chaos: invalid configuration")

// ErrWorkload: a run was not possible because of the Workload: its Prepare failed, or its
// Operate can't run under a control.
var ErrWorkload = errors.New("chaos: the workload can't be run")

// TTL is the time to live of locks in a run, unless its scenario has its own: a process
// that is paused for longer loses them.
const TTL = 2 * time.Second

// ProgressBound is the time within which every resource has to make progress after the
// faults: TTL, the bounds of transactions and eviction, and what a busy machine takes.
const ProgressBound = 20 * time.Second

// StoreBounds bounds a transaction, below the lease's time to live, as postgres.Config
// asks for.
var StoreBounds = postgres.Config{StatementTimeout: 1500 * time.Millisecond}

// Between is a random time of whole milliseconds.
func Between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64((most-least)/time.Millisecond)))*time.Millisecond
}

// Pick returns one of several.
func Pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

// Classer is an error of a Workload that is counted under its own name.
type Classer interface{ Class() string }

// Classes that scripts look for.
const (
	ClassAway  = "lock service unavailable"
	ClassFull  = "lock service full"
	ClassEnded = "transaction ended"
)

// ClassOf is the kind of an error, by which errors are counted.
func ClassOf(err error) string {
	var named Classer
	state, away := new(pgconn.PgError), new(fence.UnavailableError)
	switch {
	case errors.As(err, &named):
		return named.Class()
	case errors.Is(err, guard.ErrStaleToken):
		return "stale token"
	case errors.Is(err, guard.ErrOvertaken):
		return "overtaken"
	case errors.Is(err, guard.ErrUnknownOutcome), errors.Is(err, control.ErrUnknown):
		return "unknown outcome"
	case errors.Is(err, guard.ErrWrongLockService):
		return "wrong lock service"
	case errors.Is(err, guard.ErrFailedOver):
		return "failed over"
	case errors.Is(err, guard.ErrStoreUnavailable):
		return "database unavailable"
	case errors.Is(err, guard.ErrTxEnded):
		return ClassEnded
	case errors.As(err, &state):
		return state.Code
	case errors.Is(err, fence.ErrLeaseLost):
		return "lease lost"
	case errors.As(err, &away) && away.Reason == fence.NoSpace:
		return ClassFull
	case errors.Is(err, fence.ErrUnavailable):
		return ClassAway
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "context ended"
	}
	return "other"
}
