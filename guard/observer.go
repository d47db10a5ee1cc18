package guard

import (
	"errors"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Observer is told what a Guard does, for metrics and traces. Any of its
// functions may be nil. What the Guard does waits for them, and they are called
// from several goroutines at a time, so they must be fast and must not call the
// Guard. They must not be changed after New.
//
// Each call has a goroutine of its own, so that an Observer can't change what
// becomes of an operation: one that panics is logged, and so is one that ends its
// goroutine, as t.FailNow does in a test. The operation goes on.
type Observer struct {
	// Queued: the number of calls that wait for their turn at resource in this
	// process changed by delta, 1 or -1.
	Queued func(resource string, delta int)
	// Acquired: the lock service granted a resource after wait. Each Acquired is
	// followed by one Released.
	Acquired func(grant fence.Grant, wait time.Duration)
	// LeaseLost: a lease ended without being released. Released follows.
	LeaseLost func(err *fence.LeaseLostError)
	// Released: the Guard gave a grant up. err is what the lock service answered,
	// or context.DeadlineExceeded if it didn't within 5 s and the release goes on in
	// the background. The resource is free at the latest when the lease's time to
	// live has passed.
	Released func(grant fence.Grant, err error)
	// Claimed: the database heard of the grant.
	Claimed func(grant fence.Grant, took time.Duration)
	// Rejected: the fence rejected a grant.
	Rejected func(rejection *RejectedError)
	// Resolved: a COMMIT in doubt was asked about, up to its answer or, if err is
	// not nil, in vain.
	Resolved func(grants []fence.Grant, applied bool, err error, took time.Duration)
	// Finished: an operation ended.
	Finished func(f Finish)
}

// Finish says how an operation ended.
type Finish struct {
	Resources []string // that the call named, in order of their names
	Op        storage.OpRecord
	Grants    []fence.Grant // of the last run, one for each resource; nil if it never came to one
	Outcome   Outcome
	Err       error         // what the caller gets
	Runs      int           // how often the function was to run
	Took      time.Duration // from the call on, with all waiting
}

// Outcome is how an operation ended.
type Outcome string

// The outcomes.
const (
	OutcomeCommitted Outcome = "committed" // it took effect
	OutcomeRepeated  Outcome = "repeated"  // it had taken effect before: see Once
	OutcomeFailed    Outcome = "failed"    // it took no effect
	OutcomeRejected  Outcome = "rejected"  // the fence kept it from taking effect
	OutcomeUnknown   Outcome = "unknown"   // ErrUnknownOutcome
	OutcomePanicked  Outcome = "panicked"  // the function didn't return; no effect
)

// outcomeOf returns the outcome of an operation under grants that returned err.
func outcomeOf(err error, grants []fence.Grant) Outcome {
	switch {
	case err == nil:
		return OutcomeCommitted
	case errors.Is(err, ErrUnknownOutcome):
		return OutcomeUnknown
	case rejectionOf(err, grants...) != nil:
		return OutcomeRejected
	}
	return OutcomeFailed
}
