package queue

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Lease is a position that is first in its queue. As a fence.Lease it takes no memory of its
// own.
type Lease struct{ position *Position }

var _ fence.Lease = Lease{}

// Key is the lock key in etcd.
func (l Lease) Key() string { return l.position.key() }

// Grant implements fence.Lease.
func (l Lease) Grant() fence.Grant { return l.position.granted() }

// Context implements fence.Lease.
func (l Lease) Context() context.Context { return l.position.context() }

// Done implements fence.Lease.
func (l Lease) Done() <-chan struct{} { return l.position.context().Done() }

// Err implements fence.Lease.
func (l Lease) Err() error { return l.position.ended() }

// Remaining implements fence.Lease.
func (l Lease) Remaining() time.Duration {
	if l.position.ended() != nil {
		return 0
	}
	return l.position.session.Remaining()
}

// AfterContended implements fence.Lease.
func (l Lease) AfterContended(f func()) (stop func() bool) { return l.position.AfterContended(f) }

// AfterLost implements fence.Lease.
func (l Lease) AfterLost(f func()) { l.position.afterLost(f) }

// Release deletes the key. With a ctx that has ended it returns the error of ctx at once
// and deletes the key in the background, where each attempt is bounded by
// Config.RequestTimeout alone.
func (l Lease) Release(ctx context.Context) error {
	if !l.position.end(fence.ErrReleased) {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	return l.position.line.queues.giveBack(ctx, l.position)
}
