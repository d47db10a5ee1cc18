package guard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
)

// releaseTimeout bounds one release, and how long Close waits for releases after its
// context has ended.
const releaseTimeout = 5 * time.Second

// ownership is what the process has while it owns a resource: the lease, and the state of
// its grant. It is kept from call to call.
type ownership struct {
	grantState
	lease    fence.Lease
	stopLost func() bool
	running  atomic.Pointer[runContext] // of the function that runs under it, or nil

	// Guarded by keeper.mu.
	contended time.Time // when another process began to wait; zero if none does
	idleSince time.Time
	overrun   bool // released while a function still runs under it: see Config.MaxRun
	expiry    *time.Timer
}

// own returns the ownership of l, whose turn the caller has. If there is none that can be
// used, it acquires the resource.
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
	return k.keep(l, lease, claimedBefore), nil
}

// ownAll acquires the resources of lines, whose turns the caller has and which have no
// ownership: in their order, up to the first that isn't free.
func (k *keeper) ownAll(ctx context.Context, lines []*line) error {
	resources, claimedBefore := make([]string, len(lines)), make([]fence.Grant, len(lines))
	for i, l := range lines {
		resources[i], claimedBefore[i] = l.resource, k.supersededBy(l.resource)
	}
	ctx, end := k.untilClosing(ctx)
	defer end()
	start := time.Now()
	leases, err := k.locker.TryAcquireAll(ctx, resources...)
	if err != nil {
		return withCause(ctx, acquireError(resources[0], err))
	}
	for i, lease := range leases {
		k.report.acquired(lease.Grant(), time.Since(start))
		k.keep(lines[i], lease, claimedBefore[i])
	}
	return nil
}

// keep makes lease the ownership of l, whose turn the caller has. claimedBefore is a grant
// that had claimed before the lease was asked for.
func (k *keeper) keep(l *line, lease fence.Lease, claimedBefore fence.Grant) *ownership {
	o := &ownership{lease: lease, grantState: grantState{grant: lease.Grant(), claimedBefore: claimedBefore}}
	k.mu.Lock()
	l.ownership = o
	k.mu.Unlock()
	o.stopLost = context.AfterFunc(lease.Context(), func() { k.onLost(l, o) })
	lease.AfterContended(func() { k.onContended(l, o) })
	return o
}

// acquire acquires resource from the lock service. It gives up when Close begins.
func (k *keeper) acquire(ctx context.Context, resource string) (fence.Lease, error) {
	ctx, end := k.untilClosing(ctx)
	defer end()
	start := time.Now()
	lease, err := k.locker.Acquire(ctx, resource)
	if err != nil {
		return nil, withCause(ctx, acquireError(resource, err))
	}
	k.report.acquired(lease.Grant(), time.Since(start))
	return lease, nil
}

// untilClosing returns a context that ends when ctx does, or Close begins.
func (k *keeper) untilClosing(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// acquireError adds the name of the resource to err, unless err has it already.
func acquireError(resource string, err error) error {
	if away := (*fence.UnavailableError)(nil); errors.As(err, &away) && away.Op == "acquire "+resource {
		return fmt.Errorf("guard: %w", err)
	}
	return fmt.Errorf("guard: acquire %s: %w", resource, err)
}

// usable reports whether another call may begin under o. A nil o is not usable.
func (k *keeper) usable(o *ownership) bool {
	if o == nil || o.dead || o.lease.Context().Err() != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.overrun {
		return false
	}
	return o.contended.IsZero() || time.Since(o.contended) < k.cfg.MaxHold
}

// releaseOwnership releases the ownership of l, whose turn the caller has. When ctx ends it
// returns, and the release goes on.
func (k *keeper) releaseOwnership(ctx context.Context, l *line) {
	k.mu.Lock()
	o := l.ownership
	l.ownership = nil
	k.noteSuperseding(o)
	k.pending++
	if o.expiry != nil {
		o.expiry.Stop()
	}
	k.mu.Unlock()
	o.stopLost()
	released := make(chan struct{})
	go func() {
		defer close(released)
		k.release(context.WithoutCancel(ctx), o)
	}()
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// supersededBy returns the grant that superseded the last grant of resource that this
// process had; zero if none is known.
func (k *keeper) supersededBy(resource string) fence.Grant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.superseding[resource]
}

// noteSuperseding remembers, for the next acquisition, which grant has superseded o's.
// The caller has locked keeper.mu.
func (k *keeper) noteSuperseding(o *ownership) {
	if rejection := rejectionOf(o.rejected, o.grant); rejection != nil && (rejection.Reason == storage.ReasonStale || rejection.Reason == storage.ReasonTokensWentBack) {
		k.superseding[o.grant.Resource] = rejection.Current
	} else {
		delete(k.superseding, o.grant.Resource)
	}
}

// release releases o's lease. The caller has counted it in k.pending. ctx is not that of a
// call, whose end would keep the resource from the next process.
func (k *keeper) release(ctx context.Context, o *ownership) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := releaseLease(ctx, o.lease)
	k.report.released(o.grant, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		k.unreleased = append(k.unreleased, fmt.Errorf("guard: release %s: %w", o.grant.Resource, err))
	}
	k.pending--
	k.finish()
}

// releaseLease releases a lease. If the lock service panics or calls runtime.Goexit, it
// returns that as an error: a panic on the keeper's goroutine would end the process, and
// after a Goexit Close would wait for ever.
func releaseLease(ctx context.Context, lease fence.Lease) error {
	var err error
	if failure := callback.Run(func() { err = lease.Release(ctx) }); failure != nil {
		return failure
	}
	return err
}

// overran releases the leases of owned while a function still runs under them, which may
// never return. If it does, the ownerships are released as usual: a second Release of a
// lease does nothing.
func (k *keeper) overran(owned []*ownership) {
	for _, o := range owned {
		k.mu.Lock()
		o.overrun = true
		k.mu.Unlock()
		k.report.overran(o.grant, k.cfg.MaxRun)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
			defer cancel()
			_ = releaseLease(ctx, o.lease) // the lock service goes on in the background
		}()
	}
}

// releaseAndPass releases l's ownership and passes on the turn, which the caller has.
func (k *keeper) releaseAndPass(ctx context.Context, l *line) {
	k.releaseOwnership(ctx, l)
	k.passTurn(ctx, l)
}

// onContended is called when another process begins to wait. An idle ownership is released
// at once, a busy one when no more calls wait here, or after Config.MaxHold between two calls.
func (k *keeper) onContended(l *line, o *ownership) {
	k.mu.Lock()
	o.contended = time.Now()
	taken := k.takeIdle(l, o)
	k.mu.Unlock()
	if taken {
		k.releaseAndPass(context.Background(), l)
	}
}

// onLost is called when the lease has ended. It releases an idle ownership, and ends the
// context of a running function; the fence decides whether its transaction commits.
func (k *keeper) onLost(l *line, o *ownership) {
	if run := o.running.Load(); run != nil {
		run.end(context.Cause(o.lease.Context()))
	}
	k.reportLoss(o)
	k.mu.Lock()
	taken := k.takeIdle(l, o)
	k.mu.Unlock()
	if taken {
		k.releaseAndPass(context.Background(), l)
	}
}

func (k *keeper) reportLoss(o *ownership) {
	var loss *fence.LeaseLostError
	if errors.As(context.Cause(o.lease.Context()), &loss) {
		k.report.leaseLost(loss)
	}
}
