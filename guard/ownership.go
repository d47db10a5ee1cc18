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
//
// A process may own many resources. What belongs to all of them, such as the timer of
// Config.KeepFor, is the keeper's.
type ownership struct {
	grantState
	line    *line
	lease   fence.Lease
	running atomic.Pointer[runContext] // the context of the function that runs under it, or nil
	atOnce  bool                       // the call that has the turn doesn't want it kept

	// Guarded by keeper.mu.
	contended         instant // when another process began to wait; 0 if none does
	idleSince         instant // when the last call ended
	place[*ownership]         // in keeper.idle
}

func (o *ownership) inChain() *place[*ownership] { return &o.place }

// overrun is the value of contended if the lease is released while a function still runs under the
// ownership: see Config.MaxRun. No other call may begin under it.
const overrun = instant(-1 << 62)

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
		k.failWaiting(ctx, err, l)
		return nil, err
	}
	return k.keep(l, lease, claimedBefore), nil
}

// ownAll acquires the resources of lines, in their order, up to the first that isn't free. The
// caller has their turns, and none has an ownership.
func (k *keeper) ownAll(ctx context.Context, lines []*line) error {
	resources, claimedBefore := make([]string, len(lines)), make([]*fence.Grant, len(lines))
	for i, l := range lines {
		resources[i], claimedBefore[i] = l.resource, k.supersededBy(l.resource)
	}
	ctx, end := k.untilClosing(ctx)
	defer end()
	start := time.Now()
	leases, err := k.locker.TryAcquireAll(ctx, resources...)
	if err != nil {
		err = withCause(ctx, acquireError(resources[0], err))
		k.failWaiting(ctx, err, lines...)
		return err
	}
	for i, lease := range leases {
		k.report.acquired(ctx, lease.Grant(), time.Since(start))
		k.keep(lines[i], lease, claimedBefore[i])
	}
	return nil
}

// keep makes lease the ownership of l, whose turn the caller has. claimedBefore is a grant
// that had claimed before the lease was asked for, or nil.
func (k *keeper) keep(l *line, lease fence.Lease, claimedBefore *fence.Grant) *ownership {
	o := &ownership{line: l, lease: lease}
	o.claim.Grant, o.claimedBefore = lease.Grant(), claimedBefore
	k.mu.Lock()
	l.ownership = o
	o.claim.Position = k.seen.at(l.resource)
	k.mu.Unlock()
	lease.AfterLost(o.onLost)
	lease.AfterContended(o.onContended)
	return o
}

// acquire acquires resource from the lock service. It gives up when Close begins.
func (k *keeper) acquire(ctx context.Context, resource string) (fence.Lease, error) {
	ctx, end := k.untilClosing(ctx)
	defer end()
	start := time.Now()
	lease, err := k.acquireObserved(ctx, resource)
	if err != nil {
		return nil, withCause(ctx, acquireError(resource, err))
	}
	k.report.acquired(ctx, lease.Grant(), time.Since(start))
	return lease, nil
}

// acquireObserved acquires resource while the Observers know of it.
func (k *keeper) acquireObserved(ctx context.Context, resource string) (fence.Lease, error) {
	k.report.acquiring(ctx, resource, 1)
	defer k.report.acquiring(ctx, resource, -1)
	return k.locker.Acquire(ctx, resource)
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
	if o == nil || o.dead || o.lease.Err() != nil { // mutant: dead-grants-are-used
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return o.contended == 0 || o.contended != overrun && k.since(o.contended) < k.cfg.MaxHold // mutant: calls-go-on-although-others-wait
}

// releaseOwnership releases the ownership of l, whose turn the caller has. When ctx ends it
// returns, and the release goes on.
func (k *keeper) releaseOwnership(ctx context.Context, l *line) {
	k.mu.Lock()
	o := l.ownership
	l.ownership = nil
	k.noteSuperseding(o)
	k.seen.note(&o.grantState)
	k.pending++
	k.idle.remove(o)
	k.mu.Unlock()
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
// process had; nil if none is known.
func (k *keeper) supersededBy(resource string) *fence.Grant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.superseding[resource]
}

// noteSuperseding remembers, for the next acquisition, which grant has superseded o's.
// The caller holds keeper.mu.
func (k *keeper) noteSuperseding(o *ownership) {
	if rejection := rejectionOf(o.rejected, o.claim.Grant); rejection != nil && (rejection.Reason == storage.ReasonStale || rejection.Reason == storage.ReasonTokensWentBack) {
		current := rejection.Current
		k.superseding[o.claim.Grant.Resource] = &current
	} else {
		delete(k.superseding, o.claim.Grant.Resource)
	}
}

// release releases o's lease. The caller has counted it in k.pending. ctx is not that of a
// call, whose end would keep the resource from the next process.
func (k *keeper) release(ctx context.Context, o *ownership) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := releaseLease(ctx, o.lease)
	k.report.released(o.claim.Grant, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		k.unreleased = append(k.unreleased, fmt.Errorf("guard: release %s: %w", o.claim.Grant.Resource, err))
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
		o.contended = overrun
		k.mu.Unlock()
		k.report.overran(o.claim.Grant, k.cfg.MaxRun)
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
func (o *ownership) onContended() {
	k := o.line.keeper
	k.mu.Lock()
	if o.contended == 0 {
		o.contended = k.now()
	}
	k.mu.Unlock()
	o.releaseIfIdle()
}

// onLost is called when the lease is lost. It releases an idle ownership, and ends the
// context of a running function; the fence decides whether its transaction commits.
func (o *ownership) onLost() {
	k := o.line.keeper
	k.mu.Lock()
	inUse := o.line.busy && o.line.ownership == o
	k.mu.Unlock()
	if run := o.running.Load(); run != nil {
		run.end(o.lease.Err()) // mutant: functions-outlive-their-lease
	}
	var loss *fence.LeaseLostError
	if errors.As(o.lease.Err(), &loss) {
		k.report.leaseLost(loss, inUse)
	}
	o.releaseIfIdle()
}

// releaseIfIdle releases o unless a call uses it.
func (o *ownership) releaseIfIdle() {
	k := o.line.keeper
	k.mu.Lock()
	taken := k.takeIdle(o)
	k.mu.Unlock()
	if taken {
		k.releaseAndPass(context.Background(), o.line)
	}
}
