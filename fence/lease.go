package fence

import (
	"context"
	"time"
)

// Lease is the live side of a grant, held until it is released or lost. It is safe for concurrent use.
type Lease interface {
	// Grant returns what was granted, also after the end.
	Grant() Grant

	// Context ends with the lease, with ErrReleased or a *LeaseLostError as its cause. It doesn't
	// derive from the context that the lease was acquired with.
	Context() context.Context

	Done() <-chan struct{}

	// Err is the cause of Context's end; nil while the lease is held.
	Err() error

	// Remaining is the time until the holder's own deadline, as advice on whether to begin something long; 0 after
	// the end.
	Remaining() time.Duration

	// AfterContended calls f once, in a goroutine of its own, when another process waits for the resource, or at
	// once if one does already; never after the end of the lease. stop cancels the call and reports whether it did; it doesn't wait
	// for a running f.
	AfterContended(f func()) (stop func() bool)

	// AfterLost calls f in a goroutine of its own when the lease is lost, or at once if it has been; Err has the
	// loss by then. It is not called after Release. It takes less memory than Context.
	AfterLost(f func())

	// Release gives the resource up, and ends Context; it never touches a later holder's lock. nil: the
	// lock is released, or handed to the next waiter in this process. After the end it returns nil. If ctx ends first, it returns ctx's error and
	// goes on in the background; the resource is free at the latest when the lease has run out. A nil ctx is context.Background().
	Release(ctx context.Context) error
}

// Locker is a lock service. It is safe for concurrent use.
type Locker interface {
	// Acquire waits for its turn, in order of arrival where the lock service has a queue, until it owns the resource or
	// ctx ends; it then returns without waiting for the network. Calls of one process exclude each other too.
	Acquire(ctx context.Context, resource string) (Lease, error)

	// TryAcquire is Acquire without waiting: if another holder owns or awaits the resource, it returns a
	// *LockedError (ErrLocked).
	TryAcquire(ctx context.Context, resource string) (Lease, error)

	// TryAcquireAll acquires several resources, in the given order, up to the first that another holder owns or awaits,
	// and returns their leases: in one step if the lock service has one. After an error nothing is held. Callers that name resources in one
	// order, and get what is missing by Acquire in that order, never wait for each other in a circle.
	TryAcquireAll(ctx context.Context, resources ...string) ([]Lease, error)
}

// EpochKeeper is a Locker that says how an operator raises the epoch of its grants, which each lock service does in its
// own way. After a rejection that no new grant of the same epoch can avoid, package guard completes the error with it.
type EpochKeeper interface {
	// Epoch is that of a new grant, as far as the Locker knows without a request; 0 if it is always the database's.
	Epoch() int64
	// EpochRemedy says what an operator does so that new grants have the epoch to, or a higher one, instead of from.
	EpochRemedy(from, to int64) string
}

// Raiser is a Locker that can lose its count of tokens, as one in a cache does. When the fence has rejected a claim
// because it has seen a higher grant, or the same token of another holder, package guard calls Raise. A call that
// acquired the lease itself then acquires another one and claims again, once; a second rejection is
// guard.ErrStaleToken. The fence alone decides what may be written; Raise only lets a call succeed that would be
// rejected for ever.
type Raiser interface {
	// Raise makes every later grant of above's resource higher than above, or fails.
	Raise(ctx context.Context, above Grant) error
}
