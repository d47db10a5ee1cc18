// Package guard runs database transactions under fencing tokens, so that a process that was paused, cut off
// or is late can't change data after another one has taken over.
//
// The database keeps a fence for each resource: the grant that has it, and a position, which every claim,
// commit and void of an unknown outcome moves by one.
//
//   - G1: no function runs under a grant before the grant's claim has committed, or its own transaction has made it.
//   - G2: a transaction commits only if each fence is where its grant left it.
//   - G3: after a claim no transaction of an earlier grant commits, and what is read under the claim
//     includes everything that earlier ones committed.
//   - G4: an operation takes effect at most once. If [Do] returns nil, it did; after any error but
//     [ErrUnknownOutcome] and [ErrTxEnded] it did not and never will.
//   - G5: each rejection is recorded; a stale one has an earlier, higher claim.
//   - G6: transactions of one grant are serial; none starts while one is in doubt.
//
// Not promised: exclusive effects outside the transaction, rejection of an older holder's writes before the
// claim, recovery of what the database lost. See docs/guarantees.md and docs/protocol.md.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Guard acquires grants from a lock service and runs transactions under them in a store. Use New. All methods, and
// the functions that take a Guard, are safe for concurrent use.
//
// Calls for one resource run one after another, in order of arrival, also across processes that share the lock
// service, except reads without a lock ([ReadOnly]); calls for different resources don't wait for each other. Each runs
// on its caller's goroutine. The Guard keeps a resource between calls ([Config].KeepFor) until another
// process wants it; local calls that are queued then get up to 100 ms more. If the store is a [storage.Claimer], as storage/postgres at
// READ COMMITTED, Do, Value and Exec claim a resource in their own transactions, and release it at once, without
// waiting for that, until two in a row have found that no other process used it. If the locks are kept beside the
// fences, as with package pglock, they need none until eight have; the order among processes is then that in which the
// database gives the fence's row, and a call waits with a connection. If the lock service doesn't answer a call, the
// calls that wait behind it in this process fail too.
//
// A function must not call its own Guard. With the function's context the call fails with ErrInvalid; with any
// other context it deadlocks until that context ends.
type Guard[Tx any] struct {
	cfg       Config
	store     storage.Store[Tx]
	locks     *localLocks
	sightings *sightings
	report    *reporter

	claimer   storage.Claimer[Tx] // nil unless calls can claim in their own transactions
	newHolder func() string       // nil unless they need no lease for that
}

// New returns a Guard that locks with locker and writes through store. It closes neither; close the Guard
// first. Without a locker only [Guard.UnderGrant] and [Guard.UnderLease] run. New fails with ErrInvalid if
// store is nil, if either is a nil pointer, or if cfg is out of bounds.
func New[Tx any](locker fence.Locker, store storage.Store[Tx], cfg *Config) (*Guard[Tx], error) {
	if isNil(store) || locker != nil && isNil(locker) {
		return nil, fmt.Errorf("%w: New needs a store, and a locker that is no nil pointer", ErrInvalid)
	}
	filled := cfg.withDefaults()
	if err := filled.validate(); err != nil {
		return nil, err
	}
	sightings, report := newSightings(), newReporter(filled.Observers, filled.Logger)
	locks := newLocalLocks(locker, filled.KeepFor, filled.StoreTimeout, sightings, report)
	g := &Guard[Tx]{cfg: filled, store: store, locks: locks, sightings: sightings, report: report}
	if claimer, ok := store.(storage.Claimer[Tx]); ok && locker != nil {
		if newHolder, claims := claimer.Beside(locker); claims {
			g.claimer, g.newHolder = claimer, newHolder
		}
	}
	return g, nil
}

// Check reports whether lock service and store can be used as they are, and returns what is wrong with either, joined:
// see Check of the Locker and of the store, as far as they have one. If both are well, it also reports whether every
// claim would be rejected since the database has seen a higher epoch, or one far below. It changes nothing that a call
// would notice, and is for start-up and readiness probes; ctx bounds it.
func (g *Guard[Tx]) Check(ctx context.Context) error {
	if g == nil || g.locks == nil {
		return errNoGuard
	}
	parts := []any{g.locks.locker, g.store}
	wrong := make([]error, len(parts))
	var asked sync.WaitGroup
	for i, part := range parts {
		if part, ok := part.(interface{ Check(context.Context) error }); ok {
			asked.Go(func() { wrong[i] = part.Check(ctx) })
		}
	}
	asked.Wait()
	err := errors.Join(wrong...)
	keeper, keeps := g.locks.locker.(fence.EpochKeeper)
	store, knows := g.store.(interface {
		CheckEpoch(context.Context, int64) error
	})
	if err != nil || !keeps || !knows || keeper.Epoch() == 0 {
		return err
	}
	err = store.CheckEpoch(ctx, keeper.Epoch())
	if rejected := (*RejectedError)(nil); errors.As(err, &rejected) {
		g.locks.addRemedy(rejected)
	}
	return err
}

// Close ends the Guard. Calls that have not begun to run, and later ones, return ErrClosed. Close releases what is
// owned, waits for running calls, and returns the errors of releases that failed or were not confirmed within 5 s;
// such a resource is free when its lease has run out.
//
// If ctx ends first, the contexts of running functions, and of calls that wait for the database, end with the cause
// ErrClosed, and Close returns ctx's error while functions finish in the background. Releases get 5 s in any case.
// Close may be called again, to wait again. With the context of a function that runs under the Guard it returns
// ErrInvalid and closes nothing.
func (g *Guard[Tx]) Close(ctx context.Context) error {
	if g == nil || g.locks == nil {
		return errNoGuard
	}
	if ctx.Value(g.locks) != nil {
		return fmt.Errorf("%w: close: the context is that of a function that runs under this Guard: let it return first", ErrInvalid)
	}
	defer g.report.losses.log(g.report.logger)
	return g.locks.close(ctx)
}

// ObserveElection returns e, such that the Guard's Observers and Logger learn of the election of this name as of a
// lock: a deposed leader is a LeaseLost with inUse, and each end a Released.
func (g *Guard[Tx]) ObserveElection(name string, e fence.Election) fence.Election {
	return &observedElection{e, name, g.report}
}

// Config configures a Guard. A nil *Config, and every zero field, means the default.
type Config struct {
	// KeepFor is how long a resource stays owned after the last call, so that the next one needs no lock service;
	// default 10 s. It is released at once when another process waits, or was found to use it. A negative value
	// releases after every call, which waits for that.
	KeepFor time.Duration
	// MaxRun bounds one run of a function, or a whole Hold; default no bound. After it the function's context ends
	// with [context.DeadlineExceeded] as its cause, the resource is released, and the fence decides whether the
	// function may still commit. Under the caller's grants and leases it bounds each transaction, and nothing is
	// released.
	MaxRun time.Duration
	// StoreTimeout bounds each wait for the database before a function runs, and each COMMIT, which the end of the
	// caller's context doesn't interrupt; default 10 s. Then the call fails with ErrStoreUnavailable. With a
	// postgres.Batch, COMMIT includes its statements.
	StoreTimeout time.Duration
	// ResolveTimeout bounds how long a call asks what became of a COMMIT without an answer, also beyond the end of
	// its context; default 10 s.
	ResolveTimeout time.Duration
	// Observers are called in this order; default none. A nil one is skipped.
	Observers []*Observer
	// Logger gets what an operator should know; default nothing is logged. A panic of its Handler goes to standard
	// error.
	Logger *slog.Logger
}

func (c *Config) withDefaults() Config {
	var filled Config
	if c != nil {
		filled = *c
	}
	filled.KeepFor = cmp.Or(filled.KeepFor, 10*time.Second)
	filled.StoreTimeout = cmp.Or(filled.StoreTimeout, 10*time.Second)
	filled.ResolveTimeout = cmp.Or(filled.ResolveTimeout, 10*time.Second)
	return filled
}

func (c Config) validate() error {
	for name, d := range map[string]time.Duration{
		"MaxRun": c.MaxRun, "StoreTimeout": c.StoreTimeout, "ResolveTimeout": c.ResolveTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("%w: Config.%s is %v, want a positive duration or 0 for the default", ErrInvalid, name, d)
		}
	}
	return nil
}

func (g *Guard[Tx]) admit(ctx context.Context, resources []string) error {
	if g == nil || g.locks == nil {
		return errNoGuard
	}
	if g.locks.locker == nil {
		return fmt.Errorf("%w: this Guard has no lock service: use UnderGrant or UnderLease", ErrInvalid)
	}
	return g.nested(ctx, g, resources)
}

// nested rejects a call with the context of a function that g runs, unless runner is the Hold of that function.
func (g *Guard[Tx]) nested(ctx context.Context, runner any, resources []string) error {
	in, ok := ctx.Value(g.locks).(*runContext)
	if !ok || in.hold != nil && in.hold == runner {
		return nil
	}
	return in.nestedError(resources)
}
