package chaos

import (
	"context"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
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

// Described is a Workload that says more about an operation than its Resource.
type Described interface {
	// Describe returns the kind of an operation, and all resources that it uses.
	Describe(op Op) (action string, resources []string)
}

// Classer is an error of a Workload that is counted under its own name.
type Classer interface{ Class() string }

// Op is one operation that a run asks for.
type Op struct {
	ID       string // unique in the run
	Resource string // one of the Workload's
	Seed     uint64 // of Rand
	Action   string // what it does, for a Workload that offers several; empty: the Workload decides
}

// Rand returns a source of the operation's random decisions: always the same for the same ID
// and Seed.
func (op Op) Rand() *rand.Rand { return workload.Op{ID: op.ID, Seed: op.Seed}.Rand() }

// adapter is a Workload as worker processes run it.
type adapter struct{ Workload }

// Operate implements workload.Workload.
func (a adapter) Operate(ctx context.Context, env *workload.Env, op workload.Op) error {
	return a.Workload.Operate(ctx, &Env{Process: env.Process, Guard: env.Guard, Locker: env.Locker, Pool: env.Pool, env: env}, opOf(op))
}

// Describe implements workload.Described.
func (a adapter) Describe(op workload.Op) (action string, resources []string) {
	if d, ok := a.Workload.(Described); ok {
		return d.Describe(opOf(op))
	}
	return workload.DescribeByResource(op)
}

func opOf(op workload.Op) Op {
	return Op{ID: op.ID, Resource: op.Resource, Seed: op.Seed, Action: op.Action}
}

// Env is what an operation works with, in its worker process. Its methods may be
// called concurrently.
type Env struct {
	// Process is the worker's name.
	Process string
	// Guard is Fencekit's; nil in a control.
	Guard *guard.Guard[pgx.Tx]
	// Locker is the Guard's; nil in a control.
	Locker fence.Locker
	// Pool is for use outside of guarded transactions.
	Pool *pgxpool.Pool

	env *workload.Env
}

// PointRead is the point at which an operation has read, and not yet written. A Workload
// reports it by Env.Point; a run may pause or kill the worker process there.
const PointRead = workload.PointRead

// Point says that the operation has reached a point. It returns when the process goes on.
func (e *Env) Point(name string) { e.env.Point(name) }

// Work is what is done in one transaction: a func(ctx context.Context, tx pgx.Tx, tokens
// map[string]int64) error. tokens has the token of each resource; a control without tokens
// leaves it empty.
type Work = workload.Work

// Transact runs work in a transaction: a func(ctx context.Context, work Work, opts
// ...guard.ValueOption) error.
type Transact = workload.Transact

// Do runs work in a transaction under the lock of each resource: by guard.Do, or by the run's
// control, which ignores the options. With guard.Once a repeated call doesn't run work:
// variables that work assigns stay unset then.
func (e *Env) Do(ctx context.Context, resources []string, work Work, opts ...guard.ValueOption) error {
	return e.env.Do(ctx, resources, work, opts...)
}

// Hold runs fn while the lock of a resource is held, by guard.Hold: fn runs
// transactions with do.
func (e *Env) Hold(ctx context.Context, resource string, fn func(ctx context.Context, do Transact) error) error {
	return e.env.Hold(ctx, resource, fn)
}
