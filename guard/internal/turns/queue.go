package turns

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// waiter is a call that waits for its turn.
type waiter struct {
	place[*waiter]
	state   waiterState   // guarded by Turns.mu; unchanged once ready is closed
	ready   chan struct{} // closed at the end of the wait; nil before its begin
	offer   any           // what another call may take, see Held.TakeWaiting; or nil
	leaving bool          // its context ended after another call had taken it
	failure error         // why it got nothing, in that state
}

// waiterState says what a waiter has got.
type waiterState int

const (
	queued  waiterState = iota // nothing: it is in the queue, or has never been
	hasTurn                    // the turn
	taken                      // nothing more: another call has taken its offer
	failed                     // nothing: waiter.failure says why
	left                       // nothing: its context has ended
)

func (w *waiter) inChain() *place[*waiter] { return &w.place }

// wake ends the wait of w, which has left the queue. The caller holds Turns.mu.
func (w *waiter) wake(state waiterState) {
	w.state = state
	close(w.ready)
}

func (w *waiter) fail(err error) {
	w.failure = err
	w.wake(failed)
}

// tryTurn takes the turn at resource if it is free; nil if not.
func (t *Turns[V]) tryTurn(resource string) *line[V] {
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

// takeTurn waits for the turn at resource. w is the call's waiter, not used before; it is queued only if
// the turn isn't free. The line is nil if another call has taken what w offers.
func (t *Turns[V]) takeTurn(ctx context.Context, resource string, w *waiter) (*line[V], error) {
	if err := EndError(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, fence.ErrClosed
	}
	l := t.lineOf(resource)
	if !l.busy {
		l.busy = true
		t.mu.Unlock()
		return l, nil
	}
	w.ready = make(chan struct{})
	l.waiting.append(w) // mutant: last-come-first-served
	t.mu.Unlock()
	return t.wait(ctx, l, w)
}

// wait waits until w, which is in the queue of l, gets the turn or something else. When ctx ends the call
// leaves the queue at once, unless another one has taken its offer: then it waits for that one.
func (t *Turns[V]) wait(ctx context.Context, l *line[V], w *waiter) (*line[V], error) {
	t.Events.Queued(ctx, l.resource, 1)
	defer t.Events.Queued(ctx, l.resource, -1)
	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = LeftQueueError(ctx, l.resource)
		if t.leaveQueue(l, w) {
			return nil, err
		}
		<-w.ready // at once, unless another call has taken this one's offer
	}
	switch w.state {
	case taken:
		return nil, nil
	case failed:
		return nil, w.failure
	case hasTurn:
		if err != nil {
			t.passTurn(ctx, l) // the call got the turn just when ctx ended
		} else {
			return l, nil
		}
	}
	return nil, err
}

// leaveQueue takes w out of the queue of l. If w isn't there, since another call has taken its offer, w
// won't be put there again.
func (t *Turns[V]) leaveQueue(l *line[V], w *waiter) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.state == queued {
		l.waiting.remove(w)
		return true
	}
	w.leaving = true
	return false
}

// passTurn gives the turn to the next call. If none waits, the lease is kept for KeepFor or released.
func (t *Turns[V]) passTurn(ctx context.Context, l *line[V]) {
	t.mu.Lock()
	front := l.waiting.first
	if l.shared {
		l.shared, l.sharedEnd = false, t.now()
	}
	awaited := t.awaits(l)
	if l.lease != nil && t.mustRelease(l.lease, front != nil || awaited > 0) {
		t.mu.Unlock()
		t.release(ctx, l)
		t.passTurn(ctx, l) // another call may have queued meanwhile
		return
	}
	defer t.mu.Unlock()
	if front != nil {
		l.waiting.remove(front)
		front.wake(hasTurn)
		return
	}
	l.busy = false
	switch {
	case awaited > 0:
		time.AfterFunc(awaited, l.lease.releaseIfIdle)
		return
	case l.lease != nil:
		t.startExpiry(l.lease)
		return
	}
	delete(t.lines, l.resource)
	t.finish()
}

// awaitNext is how long a lease for which another process waits is kept for the next call, after a call
// that took others from the queue. They were all answered at once: under load their callers call again
// at once, and share the next transaction. Without it the resource would change hands after each, which
// takes longer: an acquisition, and a claim.
const awaitNext = 500 * time.Microsecond

// awaits returns for how long the lease of l is kept though another process waits for it, if no call
// waits here; 0 if it is not. MaxHold bounds it. The caller holds mu.
func (t *Turns[V]) awaits(l *line[V]) time.Duration {
	o := l.lease
	if o == nil || l.sharedEnd == 0 || o.contended <= 0 || t.closed || !o.value.Usable() || o.lease.Err() != nil {
		return 0
	}
	return max(0, min(awaitNext-t.since(l.sharedEnd), t.MaxHold-t.since(o.contended)))
}

// failWaiting fails the calls that wait for a call that has the turns at lines, with its err, if err says
// that the lock service gave no answer: in turn each of them would wait as long as this one did. If
// ctx, the call's own, has ended, others may have better luck.
func (t *Turns[V]) failWaiting(ctx context.Context, err error, lines ...*line[V]) {
	var away *fence.UnavailableError
	if ctx.Err() != nil || !errors.As(err, &away) || away.Reason != fence.Unreachable {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range lines {
		for w := l.waiting.first; w != nil; w = l.waiting.first {
			l.waiting.remove(w)
			w.fail(err)
		}
	}
}

// takeWaiting takes waiters from the front of the queue of l, whose turn the caller has, as long as accept
// returns true for what they offer.
func (t *Turns[V]) takeWaiting(l *line[V], n int, accept func(offer any) bool) (all []*waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := l.waiting.first; w != nil && w.offer != nil && len(all) < n && accept(w.offer); w = l.waiting.first {
		l.waiting.remove(w)
		w.state = taken
		l.shared = true
		all = append(all, w)
	}
	return all
}

// endTaken ends the waits of waiters that takeWaiting took, but for those that go back to the front of the
// queue, in their order.
func (t *Turns[V]) endTaken(l *line[V], all []*waiter, back func(offer any) (next any, goes bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range slices.Backward(all) {
		next, goes := back(w.offer)
		switch {
		case !goes:
			w.wake(taken)
		case w.leaving:
			w.wake(left)
		case t.closed:
			w.fail(fence.ErrClosed)
		default:
			w.state, w.offer = queued, next
			l.waiting.prepend(w)
		}
	}
}

// mustRelease reports whether o is to be released now that a call has ended. If other calls wait here, or
// are awaited, the next one decides whether it can use o. The caller holds mu.
func (t *Turns[V]) mustRelease(o *kept[V], othersWait bool) bool {
	if t.KeepFor < 0 {
		return true
	}
	return !othersWait && (t.closed || o.atOnce || !o.value.Usable() || o.contended != 0 || o.lease.Err() != nil)
}

// takeIdle takes the turn at o's line if no call has it and o is still the line's lease. The caller holds
// mu.
func (t *Turns[V]) takeIdle(o *kept[V]) bool {
	if o.line.busy || o.line.lease != o {
		return false
	}
	o.line.busy = true
	return true
}
