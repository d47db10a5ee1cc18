// Package worker is what runs in a run's worker processes: the code under test, what keeps its operations apart,
// and the process itself, which takes commands and records events.
package worker

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Workload is guarded code under test: see chaos.Workload.
type Workload interface {
	Name() string
	Resources() []string
	Prepare(ctx context.Context, db *pgxpool.Pool) error
	Operate(ctx context.Context, env *Env, op Op) error
	Check(ctx context.Context, db *pgxpool.Pool) error
}

// Op is one operation that a run asks for.
type Op struct {
	ID       string // unique in the run
	Resource string // one of the Workload's
	Seed     uint64 // of Rand
	Action   string // what it does, for a Workload that offers several; empty: the Workload decides

	think thinking // of a slow operation
}

// Rand returns a source that is always the same for the same ID and Seed.
func (op Op) Rand() *rand.Rand { return Rand(op.Seed, op.ID) }

// Rand returns a source that is always the same for the same seed and text.
func Rand(seed uint64, text string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Described is a Workload that says more about an operation than its Resource.
type Described interface {
	// Describe returns the kind of an operation, and all resources that it uses.
	Describe(op Op) (action string, resources []string)
}

// Env is what an operation works with, in its worker process. Its methods may be
// called concurrently.
type Env struct {
	Process string
	Guard   *guard.Guard[pgx.Tx] // Fencekit's; nil in a control
	Locker  fence.Locker         // the Guard's; nil in a control
	Pool    *pgxpool.Pool        // for use outside of guarded transactions

	protection protection
	at         func(point string)
}

type protection interface {
	Do(ctx context.Context, resources []string, work Work, opts []guard.ValueOption) error
	Hold(ctx context.Context, resource string, fn func(ctx context.Context, do Transact) error) error
}

// Work is what is done in one transaction: see chaos.Work.
type Work func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error

// Transact runs work in a transaction.
type Transact func(ctx context.Context, work Work, opts ...guard.ValueOption) error

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
func (e *Env) Point(name string) { e.at(name) }

// Do runs work in a transaction under the lock of each resource: by guard.Do, or by the run's
// control, which ignores the options. With guard.Once a repeated call doesn't run work:
// variables that work assigns stay unset then.
func (e *Env) Do(ctx context.Context, resources []string, work Work, opts ...guard.ValueOption) error {
	return e.protection.Do(ctx, resources, e.marked(work), opts)
}

// Hold runs fn while the lock of a resource is held, by guard.Hold: fn runs
// transactions with do.
func (e *Env) Hold(ctx context.Context, resource string, fn func(ctx context.Context, do Transact) error) error {
	return e.protection.Hold(ctx, resource, func(ctx context.Context, do Transact) error {
		return fn(ctx, func(ctx context.Context, work Work, opts ...guard.ValueOption) error {
			return do(ctx, e.marked(work), opts...)
		})
	})
}

func (e *Env) marked(work Work) Work {
	return func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
		e.Point(PointBegun)
		return work(ctx, tx, tokens)
	}
}

// ErrConfig: see chaos.ErrConfig.
var ErrConfig = errors.New("chaos: invalid configuration")

// ErrWorkload: see chaos.ErrWorkload.
var ErrWorkload = errors.New("chaos: the workload can't be run")

// TTL is the time to live of locks in a run: a process that is paused for longer loses them.
const TTL = 2 * time.Second

// ProgressBound is the time within which every resource has to make progress after the faults, on a busy machine
// too.
const ProgressBound = 20 * time.Second

// Between is a random time of whole milliseconds.
func Between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64((most-least)/time.Millisecond)))*time.Millisecond
}

// Pick returns one of several.
func Pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }
