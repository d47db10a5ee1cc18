package workload

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

	// Protection is how operations are kept apart: Fencekit, or a control.
	Protection Protection
	// At is called at each point of an operation.
	At func(point string)
}

// The points of an operation at which its process can be made to stop. A Workload
// may add its own.
const (
	PointAcquired = "acquired"    // the lock is granted, not yet claimed
	PointClaimed  = "claimed"     // the grant has claimed; no transaction has begun
	PointBegun    = "begun"       // the transaction has begun
	PointRead     = "read"        // the operation has read, and not yet written
	PointWritten  = "written"     // it has written, and a control has made its last check; COMMIT is not sent
	PointCommit   = "commit sent" // COMMIT is sent, its answer not yet read
)

// Points are the points that every operation reaches, in order.
var Points = []string{PointAcquired, PointClaimed, PointBegun, PointRead, PointWritten, PointCommit}

// Point says that the operation has reached a point. It returns when the process goes on.
func (e *Env) Point(name string) { e.At(name) }

// Do runs fn in a transaction under the lock of each resource: by guard.Do, or by the run's
// control, which ignores the options.
func (e *Env) Do(ctx context.Context, resources []string, fn Work, opts ...guard.ValueOption) error {
	return e.Protection.Do(ctx, resources, e.marked(fn), opts)
}

// Hold runs fn while the lock of a resource is held, by guard.Hold: fn runs
// transactions with do.
func (e *Env) Hold(ctx context.Context, resource string, fn func(ctx context.Context, do Transact) error) error {
	return e.Protection.Hold(ctx, resource, func(ctx context.Context, do Transact) error {
		return fn(ctx, func(ctx context.Context, work Work, opts ...guard.ValueOption) error {
			return do(ctx, e.marked(work), opts...)
		})
	})
}

// Batch runs statements that are all known beforehand in a transaction under the lock of
// a resource: by guard.Exec, or by the run's control.
func (e *Env) Batch(ctx context.Context, resource string, batch Batch, opts ...guard.ValueOption) error {
	return e.Protection.Batch(ctx, resource, batch, opts)
}

// Transact runs work in a transaction.
type Transact func(ctx context.Context, work Work, opts ...guard.ValueOption) error

// Work is what is done in one transaction. tokens has the token of each resource; a control
// without tokens leaves it empty.
type Work func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error

// marked adds the point at which every transaction begins.
func (e *Env) marked(work Work) Work {
	return func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
		e.Point(PointBegun)
		return work(ctx, tx, tokens)
	}
}

// Protection is how operations are kept apart.
type Protection interface {
	Do(ctx context.Context, resources []string, work Work, opts []guard.ValueOption) error
	Batch(ctx context.Context, resource string, batch Batch, opts []guard.ValueOption) error
	Hold(ctx context.Context, resource string, fn func(ctx context.Context, do Transact) error) error
	Close(ctx context.Context) error
}

// Batch returns the statements of an operation that makes no decision between them. token
// is an expression in SQL for the token of its resource, in a statement whose row s has that
// as its column resource.
type Batch func(token string) Statements

// Statements are statements of a transaction. Each has to affect one row.
type Statements []Statement

// Statement is one statement.
type Statement struct {
	SQL  string
	Args []any
}

// Run runs the statements.
func (all Statements) Run(ctx context.Context, tx pgx.Tx) error {
	for _, s := range all {
		tag, err := tx.Exec(ctx, s.SQL, s.Args...)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("a statement affected %d rows, not one", tag.RowsAffected())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
