package fence

import (
	"context"
	"time"
)

// Lease is the live side of a grant: held until it is released or lost. All methods may be called from several
// goroutines.
type Lease interface {
	// Grant returns what was granted. It stays the same after the end.
	Grant() Grant

	// Context ends when the lease does. Its cause is then ErrReleased, or a *LeaseLostError (F3). It carries no values
	// of the context that the lease was acquired with and doesn't end with it.
	Context() context.Context

	// Done is Context().Done().
	Done() <-chan struct{}

	// Err is the cause of Context's end; nil while the lease is held.
	Err() error

	// Remaining is the time until the holder's own conservative deadline, which renewals move on: advice for whether to
	// begin something long. 0 after the end.
	Remaining() time.Duration

	// AfterContended calls f once, in a goroutine of its own, when another process waits for the resource, or at once if
	// one does already. Waiting takes no goroutine. stop cancels the call and reports whether it did; it doesn't wait for
	// an f that has begun. After the end of the lease f is no longer called.
	AfterContended(f func()) (stop func() bool)

	// AfterLost calls f, in a goroutine of its own, when the lease is lost, or at once if it has been; not after Release.
	// Err has the loss by then. Waiting takes no goroutine, and less memory than Context.
	AfterLost(f func())

	// Release gives the resource up, if this lease still holds it; it never touches a later holder's lock. When it
	// returns, with an error or without, Context has ended. If it returns nil, the resource is free, or other calls of
	// this process are in the queue for it: what this process does with the resource from now on comes after those
	// calls. A second call, or a call after the lease was lost, returns nil. When ctx ends first, Release returns its
	// error and goes on in the background; the resource is free once the lease's time to live has passed, at the latest.
	// A nil ctx is treated as context.Background().
	Release(ctx context.Context) error
}

// Locker is a lock service. All methods may be called from several goroutines.
type Locker interface {
	// Acquire waits for its turn, in order of arrival, until it owns the resource or ctx ends; it then returns without
	// waiting for the network. Several calls for one resource in one process exclude each other too.
	Acquire(ctx context.Context, resource string) (Lease, error)

	// TryAcquire is Acquire without waiting: it returns a *LockedError (ErrLocked) if another holder owns the resource,
	// or waits for it.
	TryAcquire(ctx context.Context, resource string) (Lease, error)

	// TryAcquireAll acquires several resources in one step, without waiting for a holder: in the given order, up to the
	// first that another holder owns or waits for. It returns their leases. If it returns an error nothing is held.
	//
	// Calls that name resources in one order, and acquire what is missing by Acquire, one after another in the same
	// order, never wait for each other in a circle.
	TryAcquireAll(ctx context.Context, resources ...string) ([]Lease, error)
}
