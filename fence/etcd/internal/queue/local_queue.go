package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// localQueue admits one acquisition per resource to etcd at a time, in order of arrival
// within this process (F2).
type localQueue struct {
	mu     sync.Mutex
	turns  map[string]*turns
	closed chan struct{} // closed by close
}

// turns is the queue of one resource within this process.
type turns struct {
	position *Position // of the call whose turn it is; nil before it has one
	waiting  []chan struct{}
}

func newLocalQueue() *localQueue {
	return &localQueue{turns: map[string]*turns{}, closed: make(chan struct{})}
}

// tryTake takes the turn if no other call has it. Otherwise it returns that call's
// position, which may be nil.
func (q *localQueue) tryTake(resource string) (bool, *Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.turns[resource]; t != nil {
		return false, t.position
	}
	q.turns[resource] = &turns{}
	return true, nil
}

// wait waits for the turn.
func (q *localQueue) wait(ctx context.Context, resource string) error {
	q.mu.Lock()
	t := q.turns[resource]
	if t == nil {
		q.turns[resource] = &turns{}
		q.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	ahead := t.position
	q.mu.Unlock()
	if ahead != nil {
		ahead.contend()
	}
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		locked := &fence.LockedError{Resource: resource, Holder: q.holder(resource)}
		q.giveUp(resource, mine)
		return fmt.Errorf("%w: waiting for another call of this process, or for a lease that it holds (a leader writes through Guard.UnderLease): %w", locked, cluster.EndOf(ctx))
	case <-q.closed:
		q.giveUp(resource, mine)
		return cluster.ErrLockerClosed
	}
}

// giveUp leaves the queue. If the turn has just come it passes it on.
func (q *localQueue) giveUp(resource string, mine chan struct{}) {
	q.mu.Lock()
	t := q.turns[resource]
	if t != nil {
		if i := slices.Index(t.waiting, mine); i >= 0 {
			t.waiting = slices.Delete(t.waiting, i, i+1)
			q.mu.Unlock()
			return
		}
	}
	q.mu.Unlock()
	q.passOn(resource)
}

// setPosition records the position of the call that has the turn.
func (q *localQueue) setPosition(resource string, p *Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns[resource].position = p
}

// passOn gives the turn to the call that has waited longest.
func (q *localQueue) passOn(resource string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.turns[resource]
	if len(t.waiting) == 0 {
		delete(q.turns, resource)
		return
	}
	next := t.waiting[0]
	t.waiting, t.position = t.waiting[1:], nil
	close(next)
}

// current is the position whose turn it is, nil if there is none yet.
func (q *localQueue) current(resource string) *Position {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.turns[resource]; t != nil {
		return t.position
	}
	return nil
}

// holder is the holder of the current position, "" if there is none yet.
func (q *localQueue) holder(resource string) string {
	if p := q.current(resource); p != nil {
		return p.holder
	}
	return ""
}

// waited reports whether calls of this process wait for the resource.
func (q *localQueue) waited(resource string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.turns[resource]
	return t != nil && len(t.waiting) > 0
}
