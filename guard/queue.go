package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// line is the queue of calls for one resource. One call at a time has the turn; only it
// uses the ownership. What releases an idle ownership takes the turn too.
type line struct {
	keeper    *keeper
	resource  string
	waiting   chain[*waiter] // in order of arrival
	ownership *ownership     // written with the turn and keeper.mu, read with either
	busy      bool           // a call has the turn
	byHold    bool           // the call that has the turn is a Hold
	shared    bool           // that call's transaction is that of other calls too; guarded by keeper.mu

	// Of calls with batches; used with the turn.
	failed  bool    // the latest call that ran alone failed
	backoff backoff // after groups of this queue

	sharedEnd instant // when the last shared transaction ended; 0 if none has; guarded by keeper.mu
}

// waiter is a call that waits for its turn.
type waiter struct {
	place[*waiter]
	state waiterState   // written with keeper.mu, read with it or once ready is closed
	ready chan struct{} // closed at the end of the wait

	batch any // the *batchCall that another call may take into its transaction; or nil

	failure error // why it got nothing, in that state
}

// waiterState says what a waiter has got.
type waiterState int

const (
	queued     waiterState = iota // nothing: it is in the queue, or has never been
	hasTurn                       // the turn
	wasTaken                      // nothing more: another call has taken waiter.batch, and ends the wait with its transaction
	turnedAway                    // nothing: the Guard is closed
	failed                        // nothing: waiter.failure says why
)

func (w *waiter) inChain() *place[*waiter] { return &w.place }

// wake ends the wait of w, which has left the queue. The caller holds keeper.mu.
func (w *waiter) wake(state waiterState) {
	w.state = state
	close(w.ready)
}

// err is why the wait ended with nothing; nil if it did not.
func (w *waiter) err() error {
	switch w.state {
	case turnedAway:
		return ErrClosed
	case failed:
		return w.failure
	}
	return nil
}

// tryTurn takes the turn at resource if it is free; nil if not.
func (k *keeper) tryTurn(resource string) *line {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	l := k.lineOf(resource)
	if l.busy {
		return nil
	}
	l.busy = true
	return l
}

// lineOf returns the line of resource, a new one if there is none. The caller holds keeper.mu.
func (k *keeper) lineOf(resource string) *line {
	l, ok := k.lines[resource]
	if !ok {
		l = &line{keeper: k, resource: resource}
		k.lines[resource] = l
	}
	return l
}

// takeTurn waits for the turn at resource. w is the call's waiter, not used before; it is queued
// only if the turn isn't free. If w.state is hasTurn or queued afterwards, the caller has the turn
// and gives it up by passTurn. Otherwise w.state says what the call has got instead.
func (k *keeper) takeTurn(ctx context.Context, resource string, w *waiter) (*line, error) {
	if err := endError(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, ErrClosed
	}
	l := k.lineOf(resource)
	if !l.busy {
		l.busy = true
		k.mu.Unlock()
		return l, nil
	}
	w.ready = make(chan struct{})
	l.waiting.append(w) // mutant: last-come-first-served
	k.mu.Unlock()
	return k.wait(ctx, l, w)
}

// wait waits until w, which is in the queue of l, gets the turn or something else, as w.state says.
// When ctx ends the call leaves the queue at once.
func (k *keeper) wait(ctx context.Context, l *line, w *waiter) (*line, error) {
	k.report.queued(ctx, l.resource, 1)
	defer k.report.queued(ctx, l.resource, -1)
	select {
	case <-w.ready:
		return l, w.err()
	case <-ctx.Done():
	}
	k.mu.Lock()
	err := leftQueueError(ctx, l.resource, k.waitsBehind(l))
	if w.state == queued {
		l.waiting.remove(w)
		k.mu.Unlock()
		return nil, err
	}
	k.mu.Unlock()
	<-w.ready // at once, unless another call has taken this one into its transaction
	if w.state != hasTurn {
		return l, w.err()
	}
	k.passTurn(ctx, l) // the call got the turn just when ctx ended
	return nil, err
}

// The texts also fit a call that waits for the very function that made it: with a context from
// outside of that function, such a call looks like any other.
const (
	ofThisProcess = " of this process (a call made inside its function has to use that function's context)"
	anotherCall   = "another call" + ofThisProcess
)

// waitsBehind says what the calls of a line wait for. Two Holds wait for each other if the
// function of each makes a call for the other's resource with a context that isn't its own.
// Such a call looks like any other, so every Hold that calls wait for is named. The caller
// holds keeper.mu.
func (k *keeper) waitsBehind(l *line) string {
	if !l.byHold {
		return anotherCall
	}
	var others []string
	for _, other := range k.lines {
		if other != l && other.byHold && other.waiting.first != nil {
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

// setByHold sets whether the call that has the turn at l is a Hold.
func (k *keeper) setByHold(l *line, byHold bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.byHold = byHold
}

// passTurn gives the turn to the next call. If none waits, the ownership is kept for
// Config.KeepFor or released.
func (k *keeper) passTurn(ctx context.Context, l *line) {
	k.mu.Lock()
	front := l.waiting.first
	k.noteSharedEnd(l)
	lingers := k.lingers(l)
	if l.ownership != nil && k.mustRelease(l.ownership, front != nil || lingers > 0) {
		k.mu.Unlock()
		k.releaseOwnership(ctx, l)
		k.passTurn(ctx, l) // another call may have queued meanwhile
		return
	}
	defer k.mu.Unlock()
	if front != nil {
		l.waiting.remove(front)
		front.wake(hasTurn)
		return
	}
	l.busy = false
	switch {
	case lingers > 0:
		time.AfterFunc(lingers, l.ownership.releaseIfIdle)
		return
	case l.ownership != nil:
		k.startExpiry(l.ownership)
		return
	}
	delete(k.lines, l.resource)
	k.finish()
}

// failWaiting fails the calls that wait for a call that has the turns at lines, with its err, if
// err says that the lock service gave no answer: in turn each of them would wait as long as this
// one did. If ctx, the call's own, has ended, others may have better luck.
func (k *keeper) failWaiting(ctx context.Context, err error, lines ...*line) {
	var away *fence.UnavailableError
	if ctx.Err() != nil || !errors.As(err, &away) || away.Reason != fence.Unreachable {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range lines {
		for w := l.waiting.first; w != nil; w = l.waiting.first {
			l.waiting.remove(w)
			w.failure = err
			w.wake(failed)
		}
	}
}

// takeBatches takes the first calls with batches, up to limit, out of the queue of l, for the
// transaction of the call that has the turn.
func (k *keeper) takeBatches(l *line, limit int) (taken []*waiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for w := l.waiting.first; w != nil && w.batch != nil && len(taken) < limit; w = l.waiting.first {
		l.waiting.remove(w)
		w.state = wasTaken
		l.shared = true
		taken = append(taken, w)
	}
	return taken
}

// wakeTaken wakes the calls that takeBatches took.
func (k *keeper) wakeTaken(taken []*waiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range taken {
		close(w.ready)
	}
}

// putFirst gives calls the first places in the queue of l, in their order. Another call has
// the turn.
func (k *keeper) putFirst(l *line, calls []*waiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range slices.Backward(calls) {
		if k.closed {
			w.wake(turnedAway)
		} else {
			l.waiting.prepend(w)
		}
	}
}

// mustRelease reports whether o is to be released now that a call has ended. If other calls wait
// here, or are awaited, the next one decides whether it can use o. The caller holds keeper.mu.
func (k *keeper) mustRelease(o *ownership, othersWait bool) bool {
	if k.cfg.KeepFor < 0 {
		return true
	}
	return !othersWait && (k.closed || o.atOnce || o.dead || o.contended != 0 || o.lease.Err() != nil)
}

// takeIdle takes the turn at o's line if no call has it and o is still the line's ownership.
// The caller holds keeper.mu.
func (k *keeper) takeIdle(o *ownership) bool {
	if o.line.busy || o.line.ownership != o {
		return false
	}
	o.line.busy = true
	return true
}
