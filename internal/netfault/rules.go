package netfault

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Direction is one of the two ways of a connection.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// rules say what may pass on all connections of a Link.
type rules struct {
	mu      sync.Mutex
	cuts    [2]int                 // how many there are
	delays  [2]map[*delay]struct{} // those there are
	closed  bool                   // no end is left to receive anything
	changed chan struct{}          // closed by the next change
}

func newRules() *rules {
	return &rules{delays: [2]map[*delay]struct{}{{}, {}}, changed: make(chan struct{})}
}

type delay struct{ latency, jitter time.Duration }

func (d delay) draw() time.Duration {
	if d.jitter <= 0 {
		return d.latency
	}
	return d.latency - d.jitter + rand.N(2*d.jitter+1)
}

func (r *rules) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// impose changes the rules by begin until lift changes them back by end. A second call of
// lift is a no-op.
func (r *rules) impose(begin, end func()) (lift func()) {
	r.change(begin)
	return sync.OnceFunc(func() { r.change(end) })
}

// late is the delay of a packet. It is called with r.mu locked.
func (r *rules) late(d Direction) (sum time.Duration) {
	for delay := range r.delays[d] {
		sum += delay.draw()
	}
	return sum
}

// pass returns when a packet that came at a time may go on in a direction.
func (r *rules) pass(d Direction, came time.Time) {
	for {
		r.mu.Lock()
		cut, late, closed, changed := r.cuts[d] > 0, r.late(d), r.closed, r.changed
		r.mu.Unlock()
		if closed {
			return
		}
		if cut {
			<-changed
			continue
		}
		wait := time.Until(came.Add(late))
		if wait <= 0 {
			return
		}
		select {
		case <-time.After(wait):
			return
		case <-changed:
		}
	}
}

// open reports whether both directions are open, and returns a channel that the next change
// closes.
func (r *rules) open() (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cuts == [2]int{}, r.changed
}

// await waits until both directions are open; it reports false if done came first.
func (r *rules) await(done <-chan struct{}) bool {
	for {
		open, changed := r.open()
		if open {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}
