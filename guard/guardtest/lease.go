package guardtest

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// lease is a fence.Lease. Its fields are guarded by the LockService's mutex.
type lease struct {
	locker    *Locker
	grant     fence.Grant
	value     string // proclaimed
	ctx       context.Context
	cancel    context.CancelCauseFunc
	contended bool
	callbacks map[*func()]bool
	onLoss    []func()
}

func newLease(l *Locker, g fence.Grant) *lease {
	e := &lease{locker: l, grant: g, callbacks: map[*func()]bool{}}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// Grant implements fence.Lease.
func (e *lease) Grant() fence.Grant { return e.grant }

// Context implements fence.Lease.
func (e *lease) Context() context.Context { return e.ctx }

// Done implements fence.Lease.
func (e *lease) Done() <-chan struct{} { return e.ctx.Done() }

// Err implements fence.Lease.
func (e *lease) Err() error { return context.Cause(e.ctx) }

// Remaining implements fence.Lease: a minute, as if the lease had just been
// renewed, since it is lost only by LockService.Lose.
func (e *lease) Remaining() time.Duration {
	if e.ctx.Err() != nil {
		return 0
	}
	return time.Minute
}

// AfterContended implements fence.Lease.
func (e *lease) AfterContended(f func()) (stop func() bool) {
	s := e.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ctx.Err() != nil {
		return func() bool { return false }
	}
	if e.contended {
		go f()
		return func() bool { return false }
	}
	e.callbacks[&f] = true
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		stopped := e.callbacks[&f]
		delete(e.callbacks, &f)
		return stopped
	}
}

// AfterLost implements fence.Lease.
func (e *lease) AfterLost(f func()) {
	s := e.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.ctx.Err() == nil:
		e.onLoss = append(e.onLoss, f)
	case errors.Is(e.Err(), fence.ErrLeaseLost):
		go f()
	}
}

// Release implements fence.Lease. What goes on in the background when ctx has
// ended takes no time.
func (e *lease) Release(ctx context.Context) error {
	s := e.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ctx.Err() != nil {
		return nil
	}
	e.end(fence.ErrReleased)
	if k := s.resources[e.grant.Resource]; k.owner == e {
		s.pass(k)
	}
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}

// contend calls what AfterContended was given.
func (e *lease) contend() {
	e.contended = true
	for f := range e.callbacks {
		go (*f)()
	}
	clear(e.callbacks)
}

func (e *lease) lose(reason fence.LossReason) {
	e.end(&fence.LeaseLostError{Grant: e.grant, Reason: reason})
	for _, f := range e.onLoss {
		go f()
	}
	e.onLoss = nil
}

// end ends the lease, if it has not ended yet.
func (e *lease) end(cause error) {
	clear(e.callbacks)
	e.cancel(cause)
}
