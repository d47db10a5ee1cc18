package chaos

import (
	"context"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Workload is guarded code under test, with the data that it works on. It is a value without state: its methods are
// called in different processes.
type Workload interface {
	// Name is unique in its binary.
	Name() string
	// Resources are those that operations use, at least one.
	Resources() []string
	// Prepare makes tables and data.
	Prepare(ctx context.Context, db *pgxpool.Pool) error
	// Operate does one operation, in a worker process, from several goroutines. It returns nil if the operation took
	// effect, an error that is guard.ErrUnknownOutcome if that is unknown, and any other error if it had no effect and
	// never will: guard.Do returns just these. If it panics the run is violated. It has to return when ctx ends, which
	// is after a minute.
	Operate(ctx context.Context, env *Env, op Op) error
	// Check returns an error that says what is wrong with the data at the end.
	Check(ctx context.Context, db *pgxpool.Pool) error
}

// Op is one operation that a run asks for.
type Op struct {
	ID       string // unique in the run
	Resource string // one of the Workload's

	op worker.Op
}

// Rand is the source of the operation's random decisions: always the same for the same seed and ID.
func (op Op) Rand() *rand.Rand { return op.op.Rand() }

// Env is what an operation works with, in its worker process. Its methods may be called concurrently.
type Env struct {
	Guard  *guard.Guard[pgx.Tx] // Fencekit's; nil in a control
	Locker fence.Locker         // the Guard's; nil in a control
	Pool   *pgxpool.Pool        // for use outside of guarded transactions

	env *worker.Env
}

// PointRead is the point at which an operation has read, and not yet written.
const PointRead = worker.PointRead

// Point says that the operation has reached a point, such as PointRead: a run may pause or kill the worker process
// there. It returns when the process goes on.
func (e *Env) Point(name string) { e.env.Point(name) }

// Work is what is done in one transaction of Env.Do and Hold. tokens has the token of each resource; a control without
// tokens leaves it empty.
type Work func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error

// Transact runs work in a transaction.
type Transact func(ctx context.Context, work Work, opts ...guard.ValueOption) error

// Do runs work in a transaction under the lock of each resource: by guard.Do, or by the run's control, which ignores
// the options. With guard.Once a repeated call doesn't run work: variables that work assigns stay unset then.
func (e *Env) Do(ctx context.Context, resources []string, work Work, opts ...guard.ValueOption) error {
	return e.env.Do(ctx, resources, worker.Work(work), opts...)
}

// Hold runs fn while the lock of a resource is held, by guard.Hold or the run's control: fn runs transactions with do.
func (e *Env) Hold(ctx context.Context, resource string, fn func(ctx context.Context, do Transact) error) error {
	return e.env.Hold(ctx, resource, func(ctx context.Context, do worker.Transact) error {
		return fn(ctx, func(ctx context.Context, work Work, opts ...guard.ValueOption) error {
			return do(ctx, worker.Work(work), opts...)
		})
	})
}

// adapter is a Workload as the worker processes run it.
type adapter struct{ Workload }

func (a adapter) Operate(ctx context.Context, env *worker.Env, op worker.Op) error {
	return a.Workload.Operate(ctx, &Env{env.Guard, env.Locker, env.Pool, env}, Op{op.ID, op.Resource, op})
}
