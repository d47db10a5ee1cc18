package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Life is what a caller sees of a lease but its grant and its release. Begin it before its first use.
type Life[ID any] struct {
	Session *Session[ID]

	owner    Owner
	mu       *sync.Mutex // the Locker's
	cause    error
	watchers []*func()
	onLoss   func()
	lifetime context.Context // made on demand, since most are never asked for
	endLife  context.CancelCauseFunc
}

// Owner is the lease that a Life is a part of.
type Owner interface {
	// Lose ends the lease, if it isn't over. It needs the lock.
	Lose(reason fence.LossReason)
}

// Begin says which lock guards the lease. The methods of a caller's take it; those that say so need it.
func (l *Life[ID]) Begin(o Owner, s *Session[ID], mu *sync.Mutex) {
	l.owner, l.Session, l.mu = o, s, mu
}

// look ends the lease if its session is over, and returns the cause of the end. It needs the lock.
func (l *Life[ID]) look() error {
	if l.cause == nil && l.Session != nil {
		if reason := l.Session.Over(); reason != "" {
			l.owner.Lose(reason)
		}
	}
	return l.cause
}

func (l *Life[ID]) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lifetime == nil {
		l.lifetime, l.endLife = NewLifetime(l)
		if l.cause != nil {
			l.endLife(l.cause)
		}
	}
	return l.lifetime
}

func (l *Life[ID]) Done() <-chan struct{} { return l.Context().Done() }

func (l *Life[ID]) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.look()
}

func (l *Life[ID]) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look() != nil {
		return 0
	}
	return l.Session.Remaining()
}

func (l *Life[ID]) AfterLost(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch cause, earlier := l.look(), l.onLoss; {
	case errors.Is(cause, fence.ErrLeaseLost):
		go f()
	case cause != nil:
	case earlier == nil:
		l.onLoss = f
	default:
		l.onLoss = func() {
			go earlier()
			f()
		}
	}
}

// Watch is AfterContended. It calls watched, under the lock, if f is to be called one day.
func (l *Life[ID]) Watch(f func(), watched func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look() != nil {
		return func() bool { return false }
	}
	l.watchers = append(l.watchers, &f)
	watched()
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(l.watchers, &f)
		if i >= 0 {
			l.watchers = slices.Delete(l.watchers, i, i+1)
		}
		return i >= 0
	}
}

// Watched reports whether somebody is to be told that another process waits. It needs the lock.
func (l *Life[ID]) Watched() bool { return len(l.watchers) > 0 }

// Contend tells them. It needs the lock.
func (l *Life[ID]) Contend() {
	for _, f := range l.watchers {
		go (*f)()
	}
	l.watchers = nil
}

// Over is the cause of the end; nil before it. It needs the lock.
func (l *Life[ID]) Over() error { return l.cause }

// Finish ends the lease, and reports whether it has not been over. It needs the lock.
func (l *Life[ID]) Finish(cause error) bool {
	if l.cause != nil {
		return false
	}
	l.cause, l.watchers = cause, nil
	if l.endLife != nil {
		l.endLife(cause)
	}
	if l.onLoss != nil && errors.Is(cause, fence.ErrLeaseLost) {
		go l.onLoss() // mutant: loss-is-not-told
	}
	l.onLoss = nil
	return true
}

// Loss is the loss of g with the session. wrap says which request a failed renewal was. It needs the lock.
func (l *Life[ID]) Loss(g fence.Grant, reason fence.LossReason, wrap func(error) error) error {
	loss := &fence.LeaseLostError{Grant: g, Reason: reason}
	if reason == fence.LossDeadline {
		failure := l.Session.LastFailure()
		loss.Paused = l.Session.Paused()
		if loss.Paused > 0 && errors.Is(failure, context.DeadlineExceeded) {
			failure = nil // the service may have answered meanwhile
		}
		if failure != nil {
			loss.Err = wrap(failure)
		}
	}
	return loss
}

// lifetime is the context of a lease, which a stopped process's late timer has yet to end.
type lifetime struct {
	context.Context
	lease interface{ Err() error }
}

// NewLifetime returns a context that ends at the latest when it is asked after lease's Err has ended the lease. That
// has to call end.
func NewLifetime(lease interface{ Err() error }) (_ context.Context, end context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(context.Background())
	return lifetime{ctx, lease}, end
}

func (c lifetime) Err() error {
	c.look()
	return c.Context.Err()
}

func (c lifetime) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// look takes no lock after the end: a Locker may ask for the error of a caller's context when it has seen it done.
func (c lifetime) look() {
	if c.Context.Err() == nil {
		_ = c.lease.Err()
	}
}

// Ended is the error of a call whose context has ended.
func Ended(ctx context.Context, what string) error { return fmt.Errorf("%s: %w", what, EndOf(ctx)) }

// EndOf is the error and the cause of a context that has ended.
func EndOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
