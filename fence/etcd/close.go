package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Close ends all leases with fence.LossClosed, frees what is held by revoking
// the session's lease in etcd, and ends everything that goes on in the
// background; releases that etcd has not confirmed yet are done with the
// revocation. Acquire and TryAcquire then return fence.ErrLockerClosed, also
// those that wait.
//
// If etcd can't be reached Close returns a *fence.UnavailableError when ctx ends,
// at the latest when the lease must have expired by itself; everything is closed
// nevertheless. If ctx has ended already, as that of signal.NotifyContext when
// the program stops, Close takes up to Config.RequestTimeout instead: nobody
// would revoke the lease later. A second call waits in the same way for the
// first, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	ctx, cancel := l.lastChance(ctx)
	defer cancel()
	l.mu.Lock()
	again := l.closed
	l.closed = true
	starting := l.starting
	l.mu.Unlock()
	if again {
		select {
		case <-l.finished:
			return nil
		case <-ctx.Done():
			return ended(ctx, "close")
		}
	}
	defer close(l.finished)
	defer l.leases.renewals.close()
	defer l.tasks.stop()
	close(l.local.closed)
	if starting != nil {
		select {
		case <-starting.done:
		case <-ctx.Done():
		}
	}
	return l.endSessions(ctx)
}

func (l *Locker) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// lastChance is ctx, or if that has ended the time for one request without it.
func (l *Locker) lastChance(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), l.cfg.RequestTimeout)
}

// endSessions ends the session for good and waits until etcd knows, also of
// those that ended before and are being revoked in the background.
func (l *Locker) endSessions(ctx context.Context) error {
	l.mu.Lock()
	sessions := slices.Collect(maps.Keys(l.leased))
	l.mu.Unlock()
	longest := time.Duration(0)
	for _, s := range sessions {
		s.end(fence.LossClosed)
		longest = max(longest, s.granted())
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var failed error
	for _, s := range sessions {
		if err := l.revoke(ctx, s.id); err != nil {
			failed = err
		}
	}
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		failed = fmt.Errorf("%w: %w", l.noAnswer("in time"), failed)
	default:
		failed = l.diagnose(failed)
	}
	return &fence.UnavailableError{Op: "close", Err: failed}
}
