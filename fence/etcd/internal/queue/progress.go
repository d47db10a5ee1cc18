package queue

import (
	"math"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Changed implements watch.Listener.
func (l *line) Changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress()
}

// progress gives the resource to the first position that is still wanted, if that owns it by
// what is known of the queue now. Callers hold mu.
//
// A position owns the resource when every key with a lower create revision is gone, or is
// one of this process whose holder has given it up. So the resource passes from one call of
// this process to the next without waiting for etcd, if no other process is between them:
// until the later key goes too, no other process owns the resource (F2).
func (l *line) progress() {
	l.follower.Look(func(rev int64, queue []watch.Key) {
		others, shown := l.others(queue)
		due := 0
		for _, p := range l.positions {
			if p.token == 0 {
				break
			}
			known := rev >= int64(p.token) // mutant: first-before-anything-is-known
			if !p.clear && (known && others > int64(p.token) || l.follows(p)) {
				p.clear = true
			}
			if known && !p.over() {
				due++
			}
		}
		if shown < due {
			l.findMissing(rev, queue)
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

// others returns the lowest create revision of a key that is not known to be this process's, and
// how many keys belong to positions that are still wanted. Callers hold mu.
func (l *line) others(queue []watch.Key) (lowest int64, wanted int) {
	lowest = math.MaxInt64
	for _, k := range queue {
		switch p := l.own(k); {
		case p == nil:
			lowest = min(lowest, k.Created)
			l.removeStray(k)
		case !p.over():
			wanted++
		}
	}
	return lowest, wanted
}

// findMissing looks for the positions whose keys the queue as of rev lacks, and asks why those are
// gone. It compares each position with each key, so it is called only if some are missing.
func (l *line) findMissing(rev int64, queue []watch.Key) {
	for _, p := range l.positions {
		if p.token != 0 && rev >= int64(p.token) && !p.over() && !slices.ContainsFunc(queue, p.is) {
			p.askWhyGone()
		}
	}
}

// follows reports whether no other process's key is ahead of p's, as far as the key directly ahead
// shows: there was none, or it is this process's and no other process's is ahead of it.
func (l *line) follows(p *Position) bool {
	if p.pred == 0 || p.pred == l.passed { // mutant: acquire-is-first-behind-another-key
		return true
	}
	pred := l.own(watch.Key{Created: p.pred})
	return pred != nil && pred.clear // mutant: passes-on-past-another-process
}

// holderAhead is the holder that the first key of the queue names, as far as is known.
func (l *line) holderAhead() string {
	first, _ := l.follower.First()
	if p := l.own(first); p != nil {
		return p.holder
	}
	return keys.HolderIn(first.Value())
}

// askWhyGone finds out by a renewal whether the key was deleted, or the session is over.
// Callers hold the line's mu.
func (p *Position) askWhyGone() {
	if p.asked {
		return
	}
	p.asked = true
	p.session.RenewNow(func() {
		p.lose(fence.LossDeleted)
		p.settle(true)
	})
}
