package chaos

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

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

// Work is what is done in one transaction. tokens has the token of each resource; a control
// without tokens leaves it empty.
type Work func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error

// Transact runs work in a transaction.
type Transact func(ctx context.Context, work Work, opts ...guard.ValueOption) error

// Do runs work in a transaction under the lock of each resource: by guard.Do, or by the run's
// control, which ignores the options. With guard.Once a repeated call doesn't run work:
// variables that work assigns stay unset then.
func (e *Env) Do(ctx context.Context, resources []string, work Work, opts ...guard.ValueOption) error {
	return e.env.Do(ctx, resources, workload.Work(work), opts...)
}

// Hold runs fn while the lock of a resource is held, by guard.Hold: fn runs
// transactions with do.
func (e *Env) Hold(ctx context.Context, resource string, fn func(ctx context.Context, do Transact) error) error {
	return e.env.Hold(ctx, resource, func(ctx context.Context, do workload.Transact) error {
		return fn(ctx, func(ctx context.Context, work Work, opts ...guard.ValueOption) error {
			return do(ctx, workload.Work(work), opts...)
		})
	})
}
