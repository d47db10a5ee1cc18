package guard

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fencekit/fencekit/fence"
)

// keeper keeps the lines of calls and the ownership of resources. It has no
// goroutines of its own.
type keeper struct {
	locker fence.Locker
	cfg    Config
	report *reporter

	closing    context.Context // ends when Close begins
	aborted    context.Context // ends when Close will wait no longer
	beginClose context.CancelCauseFunc
	abort      context.CancelCauseFunc
	done       chan struct{} // closed when all is finished and released

	mu          sync.Mutex
	closed      bool
	lines       map[string]*line                     // those with a call, or with a ownership
	superseding map[string]fence.Grant               // by resource: see noteSuperseding
	doubts      map[fence.Grant]*UnknownOutcomeError // left by Holds without a line: see enter
	expired     []expiredOwnership                   // to be released, if still idle by then
	expiring    int                                  // number of goroutines that release them
	pending     int                                  // releases, and Holds of callers' leases, that are under way
	unreleased  []error                              // of releases that failed since Close began
}

// line is the calls for one resource. One of them at a time has the turn; it is
// the only one to touch the ownership, and busy says that there is one. Expiry and
// the like take the turn too.
type line struct {
	resource  string
	busy      bool
	byHold    bool       // by a Hold
	waiting   list.List  // of *waiter, in order of arrival
	ownership *ownership // written with the turn and keeper.mu, read with either
}

// waiter is a call that waits for its turn.
type waiter struct {
	woken bool
	ready chan struct{} // closed when woken
	err   error         // why the turn will never come
}

func (w *waiter) wake(err error) {
	w.woken, w.err = true, err
	close(w.ready)
}

func newKeeper(locker fence.Locker, cfg Config) *keeper {
	k := &keeper{
		locker: locker, cfg: cfg, report: newReporter(cfg.Observer, cfg.Logger),
		done: make(chan struct{}), lines: map[string]*line{}, superseding: map[string]fence.Grant{}, doubts: map[fence.Grant]*UnknownOutcomeError{},
	}
	k.closing, k.beginClose = context.WithCancelCause(context.Background())
	k.aborted, k.abort = context.WithCancelCause(context.Background())
	return k
}

// takeTurn waits for the turn at resource. Its caller gives it back with passTurn.
func (k *keeper) takeTurn(ctx context.Context, resource string) (*line, error) {
	if err := endError(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, ErrClosed
	}
	l, ok := k.lines[resource]
	if !ok {
		l = &line{resource: resource}
		k.lines[resource] = l
	}
	if !l.busy {
		l.busy = true
		k.mu.Unlock()
		return l, nil
	}
	w := &waiter{ready: make(chan struct{})}
	place := l.waiting.PushBack(w)
	k.mu.Unlock()
	return k.wait(ctx, l, w, place)
}

// wait waits in line. When ctx ends the call leaves it at once.
func (k *keeper) wait(ctx context.Context, l *line, w *waiter, place *list.Element) (*line, error) {
	k.report.queued(l.resource, 1)
	defer k.report.queued(l.resource, -1)
	select {
	case <-w.ready:
		return l, w.err
	case <-ctx.Done():
	}
	k.mu.Lock()
	err := leftQueueError(ctx, l.resource, k.waitsBehind(l))
	if !w.woken {
		l.waiting.Remove(place)
		k.mu.Unlock()
		return nil, err
	}
	k.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	k.passTurn(ctx, l) // the turn came in the same moment
	return nil, err
}

// A call made by the very function that it waits for, with a context from outside,
// can't be told from others.
const (
	ofThisProcess = " of this process (a call made inside its function has to use that function's context)"
	anotherCall   = "another call" + ofThisProcess
)

// waitsBehind says what the calls of a line wait for. Two Holds wait for each other if the
// function of each calls the other's resource with a context that isn't its own. Such
// a call can't be told from others, so every other Hold that calls wait for is named.
// keeper.mu is held.
func (k *keeper) waitsBehind(l *line) string {
	if !l.byHold {
		return anotherCall
	}
	var others []string
	for _, other := range k.lines {
		if other != l && other.byHold && other.waiting.Len() > 0 {
			others = append(others, other.resource)
		}
	}
	if len(others) == 0 {
		return "a Hold" + ofThisProcess
	}
	slices.Sort(others)
	return fmt.Sprintf("a Hold of this process, while calls wait behind its Hold of %s: a call made inside the function of a Hold has to use that function's context, or the two Holds may wait for each other",
		strings.Join(others, ", "))
}

// setByHold notes whether a Hold has the turn at l.
func (k *keeper) setByHold(l *line, byHold bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.byHold = byHold
}

// passTurn passes the turn on. If no call waits it stays with the line: the ownership is
// kept for a while or released.
func (k *keeper) passTurn(ctx context.Context, l *line) {
	k.mu.Lock()
	front := l.waiting.Front()
	if l.ownership != nil && k.mustRelease(l.ownership, front != nil) {
		k.mu.Unlock()
		k.releaseOwnership(ctx, l)
		k.passTurn(ctx, l) // another call may have queued meanwhile
		return
	}
	defer k.mu.Unlock()
	if front != nil {
		l.waiting.Remove(front)
		front.Value.(*waiter).wake(nil)
		return
	}
	l.busy = false
	if l.ownership != nil {
		k.startExpiry(l)
		return
	}
	delete(k.lines, l.resource)
	k.finish()
}

// mustRelease reports whether t is to be released when a call has ended. While
// others wait here, the next one looks whether it can use t. keeper.mu is held.
func (k *keeper) mustRelease(t *ownership, othersWait bool) bool {
	if k.cfg.KeepFor < 0 {
		return true
	}
	return !othersWait && (k.closed || t.dead || t.overrun || !t.contended.IsZero() || t.lease.Context().Err() != nil)
}

// takeIdle takes the turn for ownership t, if it is idle and still l's.
func (k *keeper) takeIdle(l *line, t *ownership) bool {
	if l.busy || l.ownership != t {
		return false
	}
	l.busy = true
	return true
}
