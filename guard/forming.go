package guard

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// forming is where calls with batches on different resources meet, each with its turn and claim. A call that finds
// fewer than limit groups under way leads one at once; the others share the next, so groups grow with the load.
// Waiting calls have only their own turn, and a group takes only calls that are here (L2).
type forming struct {
	limit int

	mu        sync.Mutex
	waiting   queue
	gathering int // groups that wait for a connection of the store
	underWay  int
	overdue   *time.Timer // runs waitedLong; nil if no call waits

	backoff
}

// One group per processor, and at least two, keep client and server busy; more would only be smaller.
func newForming() *forming { return &forming{limit: max(2, runtime.GOMAXPROCS(0))} }

// patience is how long calls wait before one leads regardless of limit: the groups may be waiting for a lock.
const patience = 20 * time.Millisecond

const maxBatchCalls = 64

func (f *forming) noteEnd(failed bool, n int, blamed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backoff.noteEnd(failed, n, blamed)
}

// join waits until c leads a group (theTurn), its group has ended (theOffer), or ctx has ended. A leader calls take
// when its transaction begins, and leave when that has ended. w is nil if c is to run alone, since groups have
// failed.
func (f *forming) join(ctx context.Context, c any) (w *waiter, waited bool) {
	f.mu.Lock()
	if f.nextAlone() {
		f.mu.Unlock()
		return nil, false
	}
	w = f.waiting.join(c)
	f.appoint(false)
	waited = w.listed()
	f.mu.Unlock()
	f.waiting.wait(ctx, &f.mu, w)
	return w, waited
}

// appoint makes the first waiting call lead if it is overdue, or a group is free or full. The caller holds f.mu.
func (f *forming) appoint(overdue bool) {
	free := f.gathering == 0 && (f.underWay < f.limit || f.waiting.len >= maxBatchCalls)
	if w := f.waiting.front(); w != nil && (overdue || free) {
		f.waiting.remove(&w.links)
		f.gathering++
		w.wake(theTurn, nil)
	}
	switch wait := f.waiting.len > 0; {
	case wait && f.overdue == nil:
		f.overdue = time.AfterFunc(patience, f.waitedLong)
	case !wait && f.overdue != nil:
		f.overdue.Stop()
		f.overdue = nil
	}
}

func (f *forming) waitedLong() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.overdue = nil
	f.appoint(true)
}

func (f *forming) take(n int) []*waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gathering--
	f.underWay++
	taken := f.waiting.take(n)
	f.appoint(false)
	return taken
}

func (f *forming) leave(taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if taken {
		f.underWay--
	} else {
		f.gathering--
	}
	f.appoint(false)
}
