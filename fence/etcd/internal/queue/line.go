package queue

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// line is what this process has in the queue of one resource: its positions, and the calls
// that have none yet.
type line struct {
	queues   *Queues
	resource string
	follower watch.Follower
	users    int32 // calls, and positions that aren't settled; guarded by Queues.mu
	sending  int32 // positions whose key is about to be written; guarded by sender.mu

	mu        sync.Mutex
	places    int32 // that are taken, see maxPlaces
	watched   bool
	waiting   []chan struct{} // of calls that wait for a place, in order of arrival
	positions []*Position     // not settled: those with a token, by token, then the others
	passed    int64           // the highest token of one that is settled, with no other process's key ahead
	stray     int64           // create revision of the latest key that removeStray has removed
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

// add adds p. Its key is about to be written, or has been written if it has a token. Callers hold
// mu.
func (l *line) add(p *Position) {
	i := len(l.positions)
	if p.token != 0 {
		i, _ = slices.BinarySearchFunc(l.positions, int64(p.token), (*Position).compare)
	}
	l.positions = slices.Insert(l.positions, i, p)
}

// freeNumber returns the lowest number that no position of the session has. So a few keys serve
// again and again: etcd keeps a trace of each key's name until it compacts its history, and each
// read of a queue goes through all traces in it. Callers hold mu.
func (l *line) freeNumber(s *session.Session) int16 {
	n := int16(0)
	for slices.ContainsFunc(l.positions, func(p *Position) bool { return p.session == s && p.number == n }) {
		n++
	}
	return n
}

// isAlone reports whether p is the only position.
func (l *line) isAlone(p *Position) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.positions) == 1 && l.positions[0] == p
}

// drop removes p. Callers hold mu.
func (l *line) drop(p *Position) {
	if i := slices.Index(l.positions, p); i >= 0 {
		l.positions = slices.Delete(l.positions, i, i+1)
	}
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

// own returns the position that has the key k; nil if k is another process's, or if no answer has
// shown yet that it is one of this process's. Callers hold mu.
func (l *line) own(k watch.Key) *Position {
	i, found := slices.BinarySearchFunc(l.positions, k.Created, (*Position).compare)
	if !found {
		return nil
	}
	return l.positions[i]
}

// compare orders p by its token; positions without one come last.
func (p *Position) compare(created int64) int {
	if p.token == 0 {
		return 1
	}
	return cmp.Compare(int64(p.token), created)
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
