package guard

import (
	"context"
	"sync"
)

// queue holds waiting calls in order of arrival. All methods but wait need its lock.
type queue struct{ list[*waiter] }

type waiter struct {
	links[*waiter]
	shareable any  // the *call that another one may run in its transaction; or nil
	leaving   bool // ctx ended after another call took it into its transaction
	ready     chan struct{}
	result    waitResult
	failure   error
}

type waitResult int

const (
	gotNothing waitResult = iota
	gotLock
	ranShared
)

func (q *queue) join(shareable any) *waiter {
	w := &waiter{shareable: shareable, ready: make(chan struct{})}
	q.insert(&w.links, w, nil) // mutant: last-come-first-served
	return w
}

func (q *queue) takeShareable(n int) (taken []*waiter) {
	for w := q.front(); w != nil && w.shareable != nil && len(taken) < n; w = q.front() {
		q.remove(&w.links)
		taken = append(taken, w)
	}
	return taken
}

func (w *waiter) wake(got waitResult, failure error) {
	w.result, w.failure = got, failure
	close(w.ready)
}

// wait waits until w is woken. mu guards q. When ctx ends, w leaves q, but if another call has taken it into its
// transaction it waits for that.
func (q *queue) wait(ctx context.Context, mu *sync.Mutex, w *waiter) (left bool) {
	select {
	case <-w.ready:
		return false
	case <-ctx.Done():
	}
	mu.Lock()
	w.leaving = !w.listed()
	if w.listed() {
		q.remove(&w.links)
	}
	mu.Unlock()
	if w.leaving {
		<-w.ready
	}
	return true
}

func (q *queue) failAll(err error) {
	for w := q.front(); w != nil; w = q.front() {
		q.remove(&w.links)
		w.wake(gotNothing, err)
	}
}

// list is a ring whose elements embed their links: joining takes no allocation, leaving no search. Zero is empty.
type list[T any] struct {
	ends links[T] // next is the first, prev the last
	len  int
}

type links[T any] struct {
	prev, next *links[T]
	of         T
}

func (e *links[T]) listed() bool { return e.next != nil }

func (l *list[T]) front() (first T) {
	if l.len > 0 {
		return l.ends.next.of
	}
	return first
}

// insert puts of, whose links are e, before another element, or at the end if before is nil.
func (l *list[T]) insert(e *links[T], of T, before *links[T]) {
	if l.ends.next == nil {
		l.ends.prev, l.ends.next = &l.ends, &l.ends
	}
	if before == nil {
		before = &l.ends
	}
	*e = links[T]{before.prev, before, of}
	e.prev.next, e.next.prev = e, e
	l.len++
}

func (l *list[T]) remove(e *links[T]) {
	e.prev.next, e.next.prev = e.next, e.prev
	*e = links[T]{}
	l.len--
}
