package queue

import (
	"slices"
	"strings"

	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// AfterContended counts waiting goroutines of the same Locker too: they need the holder to
// release the lock, as other processes do. With Config.MutexKeys it calls f at once for a
// name with a slash: waiters for a shorter name can't be seen.
func (p *Position) AfterContended(f func()) (stop func() bool) {
	l, w := p.line, &callback{f: f}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.over() {
		return func() bool { return false }
	}
	w.next, p.watchers = p.watchers, w
	l.follow()
	if l.contended(p) { // mutant: waiters-from-before-the-grant-are-not-contention
		p.callContended()
	}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return w.removeFrom(&p.watchers)
	}
}

// callContended calls the functions that wait for contention. Callers hold the line's mu.
func (p *Position) callContended() {
	p.watchers.call()
	p.watchers = nil
}

// contend tells the holder that another call of this process waits, p if it has a position
// already. Callers hold mu.
func (l *line) contend(p *Position) {
	if first := l.ahead(); first != nil && first != p {
		first.callContended()
	}
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

// sameSession reports whether k is a key of p's session.
func (p *Position) sameSession(k watch.Key) bool {
	id, _, unique := strings.Cut(p.name(), "-")
	return unique && strings.HasPrefix(k.Name, id+"-")
}
