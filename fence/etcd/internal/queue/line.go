package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// quantum is how many keys a process may have in one queue, for calls that hold the
// resource or wait for it. Further calls wait in the process. So a call elsewhere gets its
// turn after at most that many of each process.
const quantum = 32

// line is what this process has in the queue of one resource: its positions, and the calls
// that have none yet.
//
// A position owns the resource when every key with a lower create revision is gone, or is
// one of this process whose holder has given it up. So the resource passes from one call of
// this process to the next without waiting for etcd, if no other process is between them:
// until the later key goes too, no other process owns the resource (F2).
type line struct {
	queues   *Queues
	resource string
	follower watch.Follower
	users    int32 // calls, and positions that aren't settled; guarded by Queues.mu
	sending  int32 // positions whose key is about to be written; guarded by sender.mu

	mu        sync.Mutex
	places    int32 // taken, by calls that have a position or are about to
	watched   bool
	waiting   []chan struct{} // of calls that wait for a place
	positions []*Position     // not settled: those with a token, by token, then the others
	passed    int64           // the highest token of one that is settled, with no other process's key ahead
	soon      *time.Timer     // will watch the queue; nil if none is set
	polling   chan struct{}   // ends the polling when it is closed; nil if nothing polls
}

// enter returns the line of the resource for one more user.
func (q *Queues) enter(resource string) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[resource]
	if l == nil {
		l = &line{queues: q, resource: resource}
		l.follower.Init(q.cluster.Keys.Queue(resource), l)
		q.lines[resource] = l
	}
	l.users++
	return l
}

// leave ends a use of l.
func (l *line) leave() {
	q := l.queues
	q.mu.Lock()
	l.users--
	over := l.users == 0
	if over {
		delete(q.lines, l.resource)
	}
	q.mu.Unlock()
	if over {
		l.unwatch()
	}
}

// maxPlaces is how many calls may have a position at the same time. With MutexKeys the
// acquisitions of a session share one key.
func (l *line) maxPlaces() int32 {
	if l.queues.cluster.Keys.Mutex {
		return 1
	}
	return quantum
}

// tryTake takes a place if no other call of this process has or awaits one. Otherwise it
// returns the holder as far as it is known.
func (l *line) tryTake() (free bool, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places > 0 {
		return false, l.holder()
	}
	l.places++
	return true, ""
}

// wait waits for a place, in order of arrival.
func (l *line) wait(ctx context.Context) error {
	l.mu.Lock()
	if l.places < l.maxPlaces() {
		l.places++
		l.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	l.waiting = append(l.waiting, mine)
	l.contend(nil)
	l.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.giveUp(mine)
		return l.lockedHere(ctx)
	case <-l.queues.closed:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.giveUp(mine)
		return cluster.ErrLockerClosed
	}
}

// lockedHere is the error of a call that ctx ended while it waited for other calls of this
// process. Callers hold mu.
func (l *line) lockedHere(ctx context.Context) error {
	locked := &fence.LockedError{Resource: l.resource, Holder: l.holder()}
	return fmt.Errorf("%w: waiting for another call of this process, or for a lease that it holds (a leader writes through Guard.UnderLease): %w", locked, cluster.EndOf(ctx))
}

// giveUp leaves the queue for a place. If the place has just come it passes it on. Callers
// hold mu.
func (l *line) giveUp(mine chan struct{}) {
	if i := slices.Index(l.waiting, mine); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return
	}
	l.passOn()
}

// passOn gives a place to the call that has waited longest. Callers hold mu.
func (l *line) passOn() {
	if len(l.waiting) == 0 {
		l.places--
		return
	}
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
}

// ahead is the first position that is still wanted, nil if there is none. Callers hold mu.
func (l *line) ahead() *Position {
	for _, p := range l.positions {
		if !p.over() {
			return p
		}
	}
	return nil
}

// holder is the holder of the first position that is still wanted. Callers hold mu.
func (l *line) holder() string {
	if p := l.ahead(); p != nil {
		return p.holder
	}
	return ""
}

// add takes p, whose key is about to be written, or has been if it has a token.
// Callers hold mu.
func (l *line) add(p *Position) {
	i := len(l.positions)
	for ; i > 0 && p.token != 0 && (l.positions[i-1].token == 0 || l.positions[i-1].token > p.token); i-- {
	}
	l.positions = slices.Insert(l.positions, i, p)
}

// drop removes p. Callers hold mu.
func (l *line) drop(p *Position) {
	if i := slices.Index(l.positions, p); i >= 0 {
		l.positions = slices.Delete(l.positions, i, i+1)
	}
}

// Changed acts on what is known of the queue now.
func (l *line) Changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress()
}

// progress is Changed for callers that hold mu.
func (l *line) progress() {
	l.follower.Look(func(rev int64, queue []watch.Key) {
		others := l.others(queue)
		for _, p := range l.positions {
			if p.token == 0 {
				break
			}
			known := rev >= int64(p.token)
			if !p.clear && (known && others > int64(p.token) || l.follows(p)) {
				p.clear = true
			}
			if known && !p.over() && !slices.ContainsFunc(queue, p.is) {
				p.askWhyGone()
			}
		}
	})
	defer l.stopPolling()
	first := l.ahead()
	if first == nil {
		return
	}
	if first.clear && !first.first && !first.asked {
		first.first = true
		first.tell()
	}
	if first.watchers != nil && l.contended(first) {
		first.callContended()
	}
}

// others is the lowest create revision of a key that isn't one of positions.
func (l *line) others(queue []watch.Key) int64 {
	lowest := int64(math.MaxInt64)
	for _, k := range queue {
		if l.own(k) == nil {
			lowest = min(lowest, k.Created)
		}
	}
	return lowest
}

// own returns the position whose key k is. It is nil if k is another's, and if no answer has
// shown yet that it is one of this process.
func (l *line) own(k watch.Key) *Position {
	for _, p := range l.positions {
		if p.is(k) {
			return p
		}
	}
	return nil
}

// follows reports whether the key directly ahead of that of p is one of this process, and
// no other process's key is ahead of that.
func (l *line) follows(p *Position) bool {
	if p.pred == 0 || p.pred == l.passed {
		return true
	}
	pred := l.own(watch.Key{Created: p.pred})
	return pred != nil && pred.clear
}

// contended reports whether others wait for the resource that p holds, as far as is known.
func (l *line) contended(p *Position) bool {
	if p.cannotSee || len(l.waiting) > 0 || l.live() > 1 || l.queues.cluster.Keys.HidesWaiters(l.resource) {
		return true
	}
	others := false
	l.follower.Look(func(_ int64, queue []watch.Key) {
		others = slices.ContainsFunc(queue, func(k watch.Key) bool { return l.own(k) == nil && !p.sameSession(k) })
	})
	return others
}

// leftAhead returns the positions ahead of p that are over and whose keys may still be there.
func (l *line) leftAhead(p *Position) []*Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []*Position
	for _, e := range l.positions {
		if e.token == 0 || e.token >= p.token {
			break
		}
		if e.over() {
			left = append(left, e)
		}
	}
	return left
}

// live is how many positions are still wanted. Callers hold mu.
func (l *line) live() int {
	n := 0
	for _, p := range l.positions {
		if !p.over() {
			n++
		}
	}
	return n
}

// follow makes sure that the queue is watched. Callers hold mu.
func (l *line) follow() {
	if !l.watched {
		l.watched = true
		l.queues.watcher.Add(&l.follower)
	}
}

// watchAfter is how long a resource is held before its queue is watched. A holder that wants
// to know of others calls AfterContended, which watches it at once.
const watchAfter = 10 * time.Millisecond

// followSoon is follow, unless the resource is given up soon: then the watch would be more
// work than the lock. Callers hold mu.
func (l *line) followSoon() {
	if l.watched || l.soon != nil {
		return
	}
	l.soon = time.AfterFunc(watchAfter, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.soon = nil
		if l.ahead() != nil {
			l.follow()
		}
	})
}

// unwatch ends the watch of a line that is no longer used.
func (l *line) unwatch() {
	l.mu.Lock()
	if l.soon != nil {
		l.soon.Stop()
	}
	l.mu.Unlock()
	l.queues.watcher.Remove(&l.follower)
}

// poll makes sure that the queue is polled as long as a position waits, in case the watch
// misses an event. Callers hold mu.
func (l *line) poll() {
	if l.polling == nil {
		over := make(chan struct{})
		l.polling = over
		l.queues.cluster.Tasks.Start(func(tasks context.Context) { l.queues.watcher.Poll(tasks, &l.follower, over) })
	}
}

// stopPolling ends the polling if no position waits. Callers hold mu.
func (l *line) stopPolling() {
	waits := func(p *Position) bool { return p.answered && !p.over() && !p.first }
	if l.polling != nil && !slices.ContainsFunc(l.positions, waits) {
		close(l.polling)
		l.polling = nil
	}
}

// abandonPlace gives up the place of a call that has no position.
func (l *line) abandonPlace() {
	l.mu.Lock()
	l.passOn()
	l.mu.Unlock()
	l.leave()
}

// Denied is called when etcd denies the right to read the queue. It ends the wait of those
// that wait. A holder goes on and assumes that others wait, since it can't see them.
func (l *line) Denied(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = false
	for _, p := range l.positions {
		switch {
		case p.over():
		case p.first:
			p.cannotSee = true
			p.callContended()
		default:
			p.failed = err
			p.tell()
		}
	}
}

// holderAhead is the holder that the first key of the queue names, as far as is known.
func (l *line) holderAhead() string {
	first, _ := l.follower.Head()
	if p := l.own(first); p != nil {
		return p.holder
	}
	return keys.HolderIn(first.Value)
}

// contend tells the holder that another call of this process waits, p if it has a position
// already. Callers hold mu.
func (l *line) contend(p *Position) {
	if first := l.ahead(); first != nil && first != p {
		first.callContended()
	}
}
