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

	mu       *sync.Mutex // the Locker's
	cause    error
	watchers []*func()
	onLoss   []func()
	lifetime context.Context // made on demand, since most are never asked for
	endLife  context.CancelCauseFunc
}

// Begin says which lock guards the lease. The methods of a caller's take it; those that say so need it.
func (l *Life[ID]) Begin(s *Session[ID], mu *sync.Mutex) { l.Session, l.mu = s, mu }

func (l *Life[ID]) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lifetime == nil {
		l.lifetime, l.endLife = context.WithCancelCause(context.Background())
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
	return l.cause
}

func (l *Life[ID]) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return 0
	}
	return l.Session.Remaining()
}

func (l *Life[ID]) AfterLost(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cause == nil:
		l.onLoss = append(l.onLoss, f)
	case errors.Is(l.cause, fence.ErrLeaseLost):
		go f()
	}
}

// Watch is AfterContended. It calls watched, under the lock, if f is to be called one day.
func (l *Life[ID]) Watch(f func(), watched func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
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
	if errors.Is(cause, fence.ErrLeaseLost) {
		for _, f := range l.onLoss {
			go f()
		}
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

// Ended is the error of a call whose context has ended.
func Ended(ctx context.Context, what string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		err = cause
	} else {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("%s: %w", what, err)
}
