package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
)

// releaseTimeout bounds the wait for a release, which goes on in the background.
const releaseTimeout = 5 * time.Second

// ownership is the ownership of a resource: a lease, and how its grant stands. It is
// kept from call to call.
type ownership struct {
	grantState
	lease    fence.Lease
	stopLost func() bool

	// Guarded by keeper.mu.
	contended time.Time // since when another process waits; zero if none does
	idleSince time.Time
	overrun   bool // it is being released, although a function runs under it: see MaxRun
	expiry    *time.Timer
}

// own returns the ownership of a line whose turn the caller has, a new one if need
// be.
func (k *keeper) own(ctx context.Context, l *line) (*ownership, error) {
	if k.usable(l.ownership) {
		return l.ownership, nil
	}
	if l.ownership != nil {
		k.releaseOwnership(ctx, l)
	}
	claimedBefore := k.supersededBy(l.resource)
	lease, err := k.acquire(ctx, l.resource)
	if err != nil {
		return nil, err
	}
	t := &ownership{lease: lease, grantState: grantState{grant: lease.Grant(), claimedBefore: claimedBefore}}
	k.mu.Lock()
	l.ownership = t
	k.mu.Unlock()
	t.stopLost = context.AfterFunc(lease.Context(), func() { k.onLost(l, t) })
	lease.AfterContended(func() { k.onContended(l, t) })
	return t, nil
}

// acquire acquires, unless Close begins.
func (k *keeper) acquire(ctx context.Context, resource string) (fence.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(k.closing, func() { cancel(ErrClosed) })
	defer stop()
	start := time.Now()
	lease, err := k.locker.Acquire(ctx, resource)
	if err != nil {
		return nil, withCause(ctx, acquireError(resource, err))
	}
	k.report.acquired(lease.Grant(), time.Since(start))
	return lease, nil
}

// acquireError names the resource in front of err, which may do so already.
func acquireError(resource string, err error) error {
	if away := (*fence.UnavailableError)(nil); errors.As(err, &away) && away.Op == "acquire "+resource {
		return fmt.Errorf("guard: %w", err)
	}
	return fmt.Errorf("guard: acquire %s: %w", resource, err)
}

// usable reports whether another call may begin under t, which may be nil.
func (k *keeper) usable(t *ownership) bool {
	if t == nil || t.dead || t.lease.Context().Err() != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.overrun {
		return false
	}
	return t.contended.IsZero() || time.Since(t.contended) < k.cfg.MaxHold
}

// releaseOwnership releases the ownership of a line whose turn the caller has. The end of ctx
// ends only the waiting.
func (k *keeper) releaseOwnership(ctx context.Context, l *line) {
	k.mu.Lock()
	t := l.ownership
	l.ownership = nil
	k.noteSuperseding(t)
	k.pending++
	if t.expiry != nil {
		t.expiry.Stop()
	}
	k.mu.Unlock()
	t.stopLost()
	released := make(chan struct{})
	go func() {
		defer close(released)
		k.release(context.WithoutCancel(ctx), t)
	}()
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// supersededBy returns the grant that is known to have claimed resource, above the one
// that this process had last; zero if none is.
func (k *keeper) supersededBy(resource string) fence.Grant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.superseding[resource]
}

// noteSuperseding remembers for the next grant which one has superseded t's. keeper.mu is
// held.
func (k *keeper) noteSuperseding(t *ownership) {
	if rejection := rejectionOf(t.rejected, t.grant); rejection != nil && rejection.Reason == storage.ReasonStale {
		k.superseding[t.grant.Resource] = rejection.Current
	} else {
		delete(k.superseding, t.grant.Resource)
	}
}

// release releases t's lease, as one of k.pending. The end of a call's context must
// not keep the resource from the next process, so ctx is not that.
func (k *keeper) release(ctx context.Context, t *ownership) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := releaseLease(ctx, t.lease)
	k.report.released(t.grant, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		k.unreleased = append(k.unreleased, fmt.Errorf("guard: release %s: %w", t.grant.Resource, err))
	}
	k.pending--
	k.finish()
}

// releaseLease releases a lease. It is called on the keeper's goroutines, where a panic
// would end the process, and Close would wait in vain after a runtime.Goexit.
func releaseLease(ctx context.Context, lease fence.Lease) error {
	var err error
	if failure := callback.Run(func() { err = lease.Release(ctx) }); failure != nil {
		return failure
	}
	return err
}

// overran releases owned although a function runs under them, which may never
// return. When it does, their lines drop them; that a lease is released twice does
// nothing.
func (k *keeper) overran(owned []*ownership) {
	for _, t := range owned {
		k.mu.Lock()
		t.overrun = true
		k.mu.Unlock()
		k.report.overran(t.grant, k.cfg.MaxRun)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
			defer cancel()
			_ = releaseLease(ctx, t.lease) // it goes on in the background
		}()
	}
}

// releaseAndPass drops l's ownership and passes the turn on, which the caller has.
func (k *keeper) releaseAndPass(ctx context.Context, l *line) {
	k.releaseOwnership(ctx, l)
	k.passTurn(ctx, l)
}

// onContended is called when another process waits. An idle ownership ends at once, a
// busy one when its calls are done, or between two of them after MaxHold.
func (k *keeper) onContended(l *line, t *ownership) {
	k.mu.Lock()
	t.contended = time.Now()
	taken := k.takeIdle(l, t)
	k.mu.Unlock()
	if taken {
		k.releaseAndPass(context.Background(), l)
	}
}

// onLost is called when the lease has ended. A call that is running sees it by its
// context; the fence decides about its commit.
func (k *keeper) onLost(l *line, t *ownership) {
	k.reportLoss(t)
	k.mu.Lock()
	taken := k.takeIdle(l, t)
	k.mu.Unlock()
	if taken {
		k.releaseAndPass(context.Background(), l)
	}
}

func (k *keeper) reportLoss(t *ownership) {
	var loss *fence.LeaseLostError
	if errors.As(context.Cause(t.lease.Context()), &loss) {
		k.report.leaseLost(loss)
	}
}
