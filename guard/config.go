package guard

import (
	"fmt"
	"log/slog"
	"time"
)

// Config configures a Guard. A nil *Config, and every zero field, means the
// default.
type Config struct {
	// KeepFor is how long a resource stays owned after the last call, so that the next
	// call needs no lock service; default 10 s. When another process waits, the resource is
	// released at once. Resources that expire together are released a few at a time, and can
	// be used until then. A negative value releases after every call.
	KeepFor time.Duration
	// MaxHold is how long calls that wait in this process may still begin after another
	// process has begun to wait for the resource; default 100 ms. It never interrupts a call
	// that has begun.
	MaxHold time.Duration
	// MaxBatch is how many calls that wait for the same resource may share one transaction:
	// 1 to 60; default 1: each call has its own. With more, calls of Do, Value and Exec on the
	// Guard for exactly one resource that wait in this process run one after another in one
	// transaction, in the order of the queue, and commit together. A call that no other
	// waits behind has a transaction of its own.
	//
	// A function that fails, panics or whose context ends is rolled back alone, to a
	// savepoint. Each call returns when its group has ended, with the outcome of the group if
	// its own function succeeded; from then on the end of its context has no effect. If the
	// group doesn't commit, none of its calls took effect: those that are [Retryable] run
	// again, each in a transaction of its own, and the others fail with an error for which
	// [SafeToRetry] is true. The same holds for a call whose function failed after another one's
	// had succeeded: its own error may rest on what is gone. If the outcome of the group is
	// unknown, so is that of each call whose function succeeded.
	//
	// Calls that share a transaction share more than rows: what a function sets by SET LOCAL
	// or set_config, advisory locks of the transaction, temporary tables and their names,
	// now() and the transaction's id are seen by the functions after it, and equal
	// notifications of several arrive as one. COMMIT or ROLLBACK in a function's SQL ends the
	// transaction for all: ErrTxEnded. While a function runs, the end of its context doesn't
	// interrupt its statement; the context's deadline bounds it on the server. Config.MaxRun
	// ends the whole group, and Config.MaxHold is how long calls may join it. If the lease
	// is lost, the function that runs fails, and no other joins. Where the functions of a group
	// read from one snapshot, as at REPEATABLE READ, calls that come after it have another group.
	//
	// MaxBatch doesn't bound how many batches share a transaction. Calls of Exec that name one
	// resource each, without [Once], with a [storage.BatchOp] whose method Shares returns true,
	// such as a postgres.Batch that only reads and changes rows, do so under load whatever
	// MaxBatch is: with calls that wait behind them for the same resource, and with calls on
	// other resources. If that transaction fails, the call that made it fail runs in one of its
	// own, and the others share another.
	MaxBatch int
	// MaxRun bounds one run of a function; default no bound. When it has passed, the
	// function's context ends with [context.DeadlineExceeded] as its cause, and the resource
	// is released. So a function that hangs doesn't keep others from the resource while its
	// process goes on renewing the lease. The fence decides whether it may still commit.
	// MaxRun bounds a whole Hold. Under grants and leases of the caller's it bounds each
	// transaction, and nothing is released.
	MaxRun time.Duration
	// StoreTimeout bounds each wait for the database before a function runs: for a
	// connection, the claim and what Once has kept; default 15 s. A holder that can't reach
	// the database fails then with ErrStoreUnavailable, and lets others try.
	StoreTimeout time.Duration
	// CommitTimeout bounds one COMMIT, which the end of the caller's context
	// doesn't interrupt; default 10 s. With a postgres.Batch that includes its statements.
	CommitTimeout time.Duration
	// ResolveTimeout bounds how long a call asks whether a COMMIT whose reply was lost took
	// effect, also beyond the end of its context; default 10 s.
	ResolveTimeout time.Duration
	// Observers are called, in this order, when something happens; default none. A nil one
	// is skipped.
	Observers []*Observer
	// ProfileLabels gives the functions of Do, Value and Hold, and goroutines that they start,
	// the pprof label resource_class: the class of the call's first resource by name, which is the
	// part of its name before the first slash. The first 100 classes are told apart; the rest is
	// "other". After a function its goroutine has the labels of the caller's context again, as
	// after [pprof.Do]. Default: off.
	ProfileLabels bool
	// Logger gets what an operator should know; default nothing is logged. If its Handler
	// panics or ends its goroutine, that is reported on standard error, and the operation
	// goes on.
	Logger *slog.Logger
}

// maxBatch is the highest MaxBatch. A server keeps 64 savepoints of a transaction in shared memory;
// with more, each read of a row that the transaction has written takes longer, for all sessions.
const maxBatch = 60

const (
	defaultKeepFor        = 10 * time.Second
	defaultMaxHold        = 100 * time.Millisecond
	defaultStoreTimeout   = 15 * time.Second
	defaultCommitTimeout  = 10 * time.Second
	defaultResolveTimeout = 10 * time.Second
)

// withDefaults returns a copy of c with the defaults filled in.
func (c *Config) withDefaults() Config {
	var filled Config
	if c != nil {
		filled = *c
	}
	fill := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	if filled.MaxBatch == 0 {
		filled.MaxBatch = 1
	}
	fill(&filled.KeepFor, defaultKeepFor)
	fill(&filled.MaxHold, defaultMaxHold)
	fill(&filled.StoreTimeout, defaultStoreTimeout)
	fill(&filled.CommitTimeout, defaultCommitTimeout)
	fill(&filled.ResolveTimeout, defaultResolveTimeout)
	return filled
}

func (c Config) validate() error {
	for name, d := range map[string]time.Duration{
		"MaxHold": c.MaxHold, "MaxRun": c.MaxRun, "StoreTimeout": c.StoreTimeout, "CommitTimeout": c.CommitTimeout, "ResolveTimeout": c.ResolveTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("%w: Config.%s is %v, want a positive duration or 0 for the default", ErrInvalid, name, d)
		}
	}
	if c.MaxBatch < 1 || c.MaxBatch > maxBatch {
		return fmt.Errorf("%w: Config.MaxBatch is %d, want 1 to %d, or 0 for the default", ErrInvalid, c.MaxBatch, maxBatch)
	}
	return nil
}
