package guard

import (
	"context"
	"sync"
)

// queue holds the calls that wait, in order of arrival. Callers of all methods but wait hold its lock.
type queue struct{ list[*waiter] }

// waiter is a call that waits, for its turn or for another call that takes what it offers.
type waiter struct {
	links[*waiter]
	offer   any           // what another call may take; or nil
	queued  bool          // it is in the queue
	leaving bool          // its context ended after another call had taken its offer
	ready   chan struct{} // closed at the end of the wait, when got and failure are set
	got     waiterGot
	failure error // why it got nothing; nil if its context had ended
}

// waiterGot says what a waiter has got.
type waiterGot int

const (
	nothing  waiterGot = iota
	theTurn            // the call goes on itself
	theOffer           // another call has dealt with the offer
)

// join puts a waiter with offer at the end of q.
func (q *queue) join(offer any) *waiter {
	w := &waiter{offer: offer, ready: make(chan struct{})}
	q.put(w, nil) // mutant: last-come-first-served
	return w
}

// put puts w before another one, or at the end.
func (q *queue) put(w, before *waiter) {
	q.insert(w, before)
	w.queued = true
}

// takeOut takes w out, which is in q. It waits on until wake.
func (q *queue) takeOut(w *waiter) {
	q.remove(w)
	w.queued = false
}

// take takes up to n waiters with an offer from the front.
func (q *queue) take(n int) (taken []*waiter) {
	for w := q.front; w != nil && w.offer != nil && len(taken) < n; w = q.front {
		q.takeOut(w)
		taken = append(taken, w)
	}
	return taken
}

// wake ends the wait of w, which isn't in the queue.
func (w *waiter) wake(got waiterGot, failure error) {
	w.got, w.failure = got, failure
	close(w.ready)
}

// wait waits until w has got something. mu guards q. When ctx ends, w leaves q at once; if another call has taken
// its offer, w waits for that call, and isn't put back. left reports whether ctx ended first.
func (q *queue) wait(ctx context.Context, mu *sync.Mutex, w *waiter) (left bool) {
	select {
	case <-w.ready:
		return false
	case <-ctx.Done():
	}
	mu.Lock()
	w.leaving = !w.queued
	if w.queued {
		q.takeOut(w)
	}
	mu.Unlock()
	if w.leaving {
		<-w.ready
	}
	return true
}

// failAll ends the waits of all.
func (q *queue) failAll(err error) {
	for w := q.front; w != nil; w = q.front {
		q.takeOut(w)
		w.wake(nothing, err)
	}
}

// list is a doubly linked list whose elements have their links embedded, so that one that leaves costs no
// search, and being in it costs no allocation. The zero list is empty.
type list[E element[E]] struct{ front, back E }

// links are those of an element, which is in one list at a time.
type links[E any] struct{ prev, next E }

type element[E any] interface {
	comparable
	link() *links[E]
}

func (l *links[E]) link() *links[E] { return l }

// insert puts e before another element, or at the end if there is none.
func (l *list[E]) insert(e, before E) {
	var none E
	prev := l.back
	if before != none {
		prev = before.link().prev
		before.link().prev = e
	} else {
		l.back = e
	}
	if prev != none {
		prev.link().next = e
	} else {
		l.front = e
	}
	*e.link() = links[E]{prev, before}
}

// remove takes out e, which is in l.
func (l *list[E]) remove(e E) {
	var none E
	at := *e.link()
	if at.prev != none {
		at.prev.link().next = at.next
	} else {
		l.front = at.next
	}
	if at.next != none {
		at.next.link().prev = at.prev
	} else {
		l.back = at.prev
	}
	*e.link() = links[E]{}
}

// atLeast reports whether l has n elements.
func (l *list[E]) atLeast(n int) bool {
	var none E
	e := l.front
	for ; n > 0 && e != none; n-- {
		e = e.link().next
	}
	return n == 0
}
