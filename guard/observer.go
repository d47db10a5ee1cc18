package guard

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Observer has functions that a Guard calls when something happens, for metrics and traces.
// Packages guardprometheus and guardotel make Observers. Any function may be nil. The Guard
// waits for them, and calls them from several goroutines at a time, so they must be fast and
// must not call the Guard. One Observer may serve several Guards. Don't change it after New.
//
// [Guard.Close] doesn't wait for Started, Queued and Finished: it may return while one of them runs
// for a call that has not returned yet.
//
// Each call has a goroutine of its own. If a function panics, or ends its goroutine as
// t.FailNow does in a test, that is logged, and the operation goes on.
//
// A ctx is that of the call in which it happened, with what Started has added; in a
// transaction that calls share, that of one of them. LeaseLost and Released belong to no
// call and get none.
type Observer struct {
	// Started: an operation began. The context that it returns, derived from ctx, is that of
	// the operation and its function: a tracer puts a span there. A nil context changes nothing.
	// Only the Resources, Record and ReadOnly of operation are set yet. Finished follows.
	Started func(ctx context.Context, operation Operation) context.Context
	// Queued: a call began (delta is 1) or ceased (-1) to wait for its turn at resource in
	// this process.
	Queued func(ctx context.Context, resource string, delta int)
	// Acquiring: a call began (delta is 1) or ceased (-1) to wait until the lock service
	// grants resource.
	Acquiring func(ctx context.Context, resource string, delta int)
	// Acquired: the lock service granted a resource after wait. Each Acquired is
	// followed by one Released.
	Acquired func(ctx context.Context, grant fence.Grant, wait time.Duration)
	// LeaseLost: a lease ended without being released. Released follows. inUse says that a call used
	// the resource; else it was merely kept for the next one.
	LeaseLost func(err *fence.LeaseLostError, inUse bool)
	// Released: the Guard gave up a grant. err is the lock service's answer, or
	// context.DeadlineExceeded if there was none within 5 s; the release then goes on in the
	// background. The resource is free at the latest when the lease's time to live has
	// passed.
	Released func(grant fence.Grant, err error)
	// Claimed: a claim raised the fence to the grant.
	Claimed func(ctx context.Context, grant fence.Grant, took time.Duration)
	// Rejected: the fence rejected a grant.
	Rejected func(ctx context.Context, rejection *RejectedError)
	// Resolved: the store was asked about a COMMIT in doubt. If err is not nil, there is no
	// answer yet.
	Resolved func(ctx context.Context, grants []fence.Grant, applied bool, err error, took time.Duration)
	// Finished: an operation ended.
	Finished func(ctx context.Context, operation Operation)
}

// Operation says how an operation of Do, Value or Exec ended.
type Operation struct {
	Resources []string // that the call named, in order of their names
	Record    storage.OpRecord
	ReadOnly  bool          // the call had the option ReadOnly
	Grants    []fence.Grant // of the last run, one for each resource; nil if there was no run
	Outcome   Outcome
	Err       error         // what the call returned
	Runs      int           // how many runs began, also those that ended before the function
	Took      time.Duration // the whole call, with all waiting

	BatchSize  int // how many calls shared its last transaction, this one included; 0 if none began
	BatchPlace int // its place among them, from 0
}

// Outcome is how an operation ended.
type Outcome string

// The outcomes.
const (
	OutcomeCommitted Outcome = "committed" // it took effect; one with ReadOnly was answered
	OutcomeRepeated  Outcome = "repeated"  // it had taken effect earlier: see Once
	OutcomeFailed    Outcome = "failed"    // it took no effect
	OutcomeRejected  Outcome = "rejected"  // the fence kept it from taking effect
	OutcomeUnknown   Outcome = "unknown"   // ErrUnknownOutcome
	OutcomePanicked  Outcome = "panicked"  // the function panicked or ended its goroutine; no effect
)
