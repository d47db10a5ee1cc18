package queue

import (
	"context"
	"slices"
	"time"
)

// follow makes sure that the queue is watched. Callers hold mu.
func (l *line) follow() {
	if !l.watched {
		l.watched = true
		l.queues.watcher.Add(&l.follower)
	}
}

// watchAfter is how long a resource is held before its queue is watched. A holder that wants
// to know of others calls AfterContended, which watches it at once.
const watchAfter = 100 * time.Millisecond

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
		l.queues.cluster.Tasks.Start(func(tasks context.Context) { l.queues.watcher.Poll(tasks, &l.follower, over) }) // mutant: waiters-go-by-the-watch-alone
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

// Denied implements watch.Listener. It ends the wait of the positions that wait. A holder
// goes on and assumes that others wait, since it can't see them.
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
