package guard

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// lines has a line for each resource in use. It shares resources among the calls of one process, and among
// processes through the lock service.
type lines struct {
	locker  fence.Locker  // nil if the Guard has none
	keepFor time.Duration // how long a lease is kept after the last call; negative: not at all
	maxHold time.Duration // how long calls may still begin after another process has begun to wait
	memory  *memory
	report  *reporter

	closing    context.Context // ends when Close begins
	beginClose context.CancelCauseFunc
	done       chan struct{} // closed when, after Close, all calls have ended and all is released

	mu         sync.Mutex
	closed     bool
	byResource map[string]*line // those with a call or a lease
	pending    int              // how many releases, and calls under grants of the caller's, are under way
	unreleased []error          // of releases that failed since Close began
	running    map[*runContext]struct{}
	abandoned  bool // Close has given up waiting for running

	// The leases that expire unless they are used, in the order in which they became idle: the first is the
	// next to expire, so one timer is enough. One that a call has begun to use may still be in it.
	idle      list.List   // of *grantState
	timer     *time.Timer // of the first one; nil before its first use
	armed     bool        // timer will call expire
	releasing int         // how many goroutines are in expire
}

// line is the queue of calls for one resource, in order of arrival, and its lease. One call at a time has the
// turn; only it uses the lease. What releases an idle lease takes the turn too.
type line struct {
	lines    *lines
	resource string
	lease    *grantState // written with the turn and lines.mu, read with either

	// Guarded by lines.mu.
	busy      bool // a call has the turn
	waiting   []*waiter
	shared    bool      // the call that has the turn has taken others from the queue
	sharedEnd time.Time // when such a call last ended
}

func newLines(locker fence.Locker, keepFor time.Duration, memory *memory, report *reporter) *lines {
	t := &lines{
		locker: locker, keepFor: keepFor, maxHold: maxHold, memory: memory, report: report,
		done: make(chan struct{}), byResource: map[string]*line{}, running: map[*runContext]struct{}{},
	}
	t.closing, t.beginClose = context.WithCancelCause(context.Background())
	return t
}

// waiter is a call that waits for its turn.
type waiter struct {
	offer   any           // what another call may take; or nil
	leaving bool          // its context ended after another call had taken its offer
	ready   chan struct{} // closed at the end of the wait; before it, got and failure are guarded by lines.mu
	got     waiterGot
	failure error // why it got nothing; nil if its context had ended
}

// waiterGot says what a waiter has got.
type waiterGot int

const (
	nothing  waiterGot = iota
	theTurn            // at the resource
	theOffer           // done, by another call
)

// wake ends the wait of w, which isn't in the queue. The caller holds lines.mu.
func (w *waiter) wake(got waiterGot, failure error) {
	w.got, w.failure = got, failure
	close(w.ready)
}

// failAll ends the waits of all in the queue. The caller holds lines.mu.
func (l *line) failAll(err error) {
	for _, w := range l.waiting {
		w.wake(nothing, err)
	}
	l.waiting = nil
}

// lineOf returns the line of resource, a new one if there is none. The caller holds mu.
func (t *lines) lineOf(resource string) *line {
	l, ok := t.byResource[resource]
	if !ok {
		l = &line{lines: t, resource: resource}
		t.byResource[resource] = l
	}
	return l
}

// tryTurn takes the turn at resource if it is free; nil if not.
func (t *lines) tryTurn(resource string) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	l := t.lineOf(resource)
	if l.busy {
		return nil
	}
	l.busy = true
	return l
}

// takeTurn waits for the turn at resource. The line is nil if another call, which had the turn, has done what
// this one offers.
func (t *lines) takeTurn(ctx context.Context, resource string, offer any) (*line, error) {
	if err := endError(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, ErrClosed
	}
	l := t.lineOf(resource)
	if !l.busy {
		l.busy = true
		t.mu.Unlock()
		return l, nil
	}
	w := &waiter{offer: offer, ready: make(chan struct{})}
	l.waiting = append(l.waiting, w) // mutant: last-come-first-served
	t.mu.Unlock()
	return t.wait(ctx, l, w)
}

// wait waits until w, which is in the queue of l, gets the turn or something else. When ctx ends the call
// leaves the queue at once, unless another one has taken its offer: then it waits for that one.
func (t *lines) wait(ctx context.Context, l *line, w *waiter) (*line, error) {
	t.report.queued(ctx, l.resource, 1)
	defer t.report.queued(ctx, l.resource, -1)
	var left error
	select {
	case <-w.ready:
	case <-ctx.Done():
		left = leftQueueError(ctx, l.resource)
		if t.leaveQueue(l, w) {
			return nil, left
		}
		<-w.ready // at once, unless another call has taken this one's offer
	}
	switch {
	case w.got == theOffer:
		return nil, nil
	case w.got == theTurn && left == nil:
		return l, nil
	case w.got == theTurn:
		t.passTurn(ctx, l) // the call got the turn just when ctx ended
	}
	return nil, cmp.Or(w.failure, left)
}

// leaveQueue takes w out of the queue of l. If w isn't there, since another call has taken its offer, w
// won't be put there again.
func (t *lines) leaveQueue(l *line, w *waiter) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(l.waiting, w)
	if w.leaving = i < 0; w.leaving {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// passTurn gives the turn to the next call. If none waits, the lease is kept for a while or released.
func (t *lines) passTurn(ctx context.Context, l *line) {
	t.mu.Lock()
	if l.shared {
		l.shared, l.sharedEnd = false, time.Now()
	}
	keep := t.keeps(l)
	if l.lease != nil && keep <= 0 {
		t.mu.Unlock()
		t.release(ctx, l)
		t.passTurn(ctx, l) // another call may have queued meanwhile
		return
	}
	defer t.mu.Unlock()
	if len(l.waiting) > 0 {
		w := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		w.wake(theTurn, nil)
		return
	}
	l.busy = false
	switch {
	case l.lease == nil:
		delete(t.byResource, l.resource)
		t.finish()
	case l.lease.contended.IsZero():
		t.startExpiry(l.lease)
	default:
		time.AfterFunc(keep, l.lease.releaseIfIdle)
	}
}

// awaitNext is how long a lease for which another process waits is kept for the next call, after a call
// that took others from the queue. They were all answered at once: under load their callers call again
// at once, and share the next transaction. Without it the resource would change hands after each, which
// takes longer: an acquisition, and a claim.
const awaitNext = 500 * time.Microsecond

// keeps returns for how long the lease of l, if it has one, is kept now that a call has ended; 0 if it is to be
// released. The caller holds mu.
func (t *lines) keeps(l *line) time.Duration {
	s := l.lease
	switch {
	case s == nil || t.keepFor < 0:
		return 0
	case len(l.waiting) > 0:
		return t.keepFor // the next call decides whether it can use the lease
	case t.closed || s.atOnce || s.dead || s.overrun || s.lease.Err() != nil:
		return 0
	case s.contended.IsZero():
		return t.keepFor
	case l.sharedEnd.IsZero():
		return 0
	}
	return min(awaitNext-time.Since(l.sharedEnd), t.maxHold-time.Since(s.contended))
}

// failWaiting fails the calls that wait for a call that has the turns at lines, with its err, if err says
// that the lock service gave no answer: in turn each of them would wait as long as this one did. If
// ctx, the call's own, has ended, others may have better luck.
func (t *lines) failWaiting(ctx context.Context, err error, lines []*line) {
	var away *fence.UnavailableError
	if ctx.Err() != nil || !errors.As(err, &away) || away.Reason != fence.Unreachable {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range lines {
		l.failAll(err)
	}
}

// takeWaiting takes up to n waiters with an offer from the front of the queue of l, whose turn the caller has.
// They wait on until endTaken.
func (t *lines) takeWaiting(l *line, n int) []*waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := slices.IndexFunc(l.waiting, func(w *waiter) bool { return w.offer == nil })
	if end < 0 {
		end = len(l.waiting)
	}
	taken := slices.Clone(l.waiting[:min(n, end)])
	l.waiting = slices.Delete(l.waiting, 0, len(taken))
	l.shared = l.shared || len(taken) > 0
	return taken
}

// endTaken ends the waits of waiters that takeWaiting took; or puts them back to the front of the queue, in
// their order, with what they offer now.
func (t *lines) endTaken(l *line, taken []*waiter, back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range slices.Backward(taken) {
		switch {
		case !back:
			w.wake(theOffer, nil)
		case w.leaving:
			w.wake(nothing, nil)
		case t.closed:
			w.wake(nothing, ErrClosed)
		default:
			l.waiting = slices.Insert(l.waiting, 0, w)
		}
	}
}

// enter counts a call that takes no turns, so that Close waits for it. It calls leave at its end.
func (t *lines) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.pending++
	return nil
}

// leave notes that a call has ended.
func (t *lines) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	t.finish()
}

// finish closes done if nothing is left after Close. The caller holds mu.
func (t *lines) finish() {
	if t.closed && len(t.byResource) == 0 && t.pending == 0 {
		close(t.done)
	}
}

// close is Guard.Close.
func (t *lines) close(ctx context.Context) error {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ends with ctx, but not before releaseTimeout has passed
	defer cancel()
	timer := time.AfterFunc(releaseTimeout, func() {
		select {
		case <-ctx.Done():
			cancel()
		case <-patient.Done():
		}
	})
	defer timer.Stop()
	t.releaseAll(patient, t.closeLines())
	var gaveUp error
	select {
	case <-t.done:
	case <-patient.Done():
		gaveUp = fmt.Errorf("guard: close: %w", ctx.Err())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(append([]error{gaveUp}, t.unreleased...)...)
}

// closeLines turns waiting calls away, and takes the turns at the lines that no call uses.
func (t *lines) closeLines() (idle []*line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.beginClose(ErrClosed)
	if t.timer != nil {
		t.timer.Stop()
	}
	for _, l := range t.byResource {
		l.failAll(ErrClosed)
		if l.lease != nil && t.takeIdle(l.lease) {
			idle = append(idle, l)
		}
	}
	t.finish()
	return idle
}

// maxCloseReleases bounds how many leases Close releases at a time.
const maxCloseReleases = 32

// releaseAll releases the leases of lines whose turns the caller has. It returns when that is done or
// ctx has ended.
func (t *lines) releaseAll(ctx context.Context, lines []*line) {
	var done sync.WaitGroup
	places := make(chan struct{}, maxCloseReleases)
	for _, l := range lines {
		places <- struct{}{}
		done.Go(func() {
			t.releaseAndPass(ctx, l)
			<-places
		})
	}
	done.Wait()
}
