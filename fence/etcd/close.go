package etcd

import (
	"context"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// Close ends all leases with fence.LossClosed, revokes the session's lease in etcd, which
// deletes all lock keys, and ends everything that runs in the background. The revocation
// also completes releases that etcd has not confirmed yet. Acquire and TryAcquire then
// return fence.ErrClosed, also calls that are waiting.
//
// If etcd can't be reached Close returns a *fence.UnavailableError when ctx ends, at the
// latest when the lease must have expired by itself; everything is closed nevertheless. If
// ctx has ended already, as that of signal.NotifyContext has when the program stops, Close
// takes up to Config.RequestTimeout instead, because nothing would revoke the lease later.
// A second call waits for the first within the same bounds, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	ctx, cancel := l.lastChance(ctx)
	defer cancel()
	if !l.closed.CompareAndSwap(false, true) {
		select {
		case <-l.finished:
			return nil
		case <-ctx.Done():
			return cluster.Ended(ctx, "close")
		}
	}
	defer close(l.finished)
	defer l.sessions.CloseStream()
	defer l.cluster.Tasks.Stop()
	l.queues.Close()
	return l.sessions.Close(ctx)
}

// lastChance returns ctx; or if that has ended, a context with time for one request.
func (l *Locker) lastChance(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), l.cluster.RequestTimeout)
}
