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

// rules say what may pass. All connections of a Link obey the same.
type rules struct {
	mu      sync.Mutex
	cut     [2]bool
	delays  [2]delay
	closed  bool          // nobody is left to get anything
	changed chan struct{} // closed by the next change
}

func newRules() *rules { return &rules{changed: make(chan struct{})} }

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

// pass returns when what came at a time may go on in a direction.
func (r *rules) pass(d Direction, came time.Time) {
	for {
		r.mu.Lock()
		cut, late, closed, changed := r.cut[d], r.delays[d].draw(), r.closed, r.changed
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

// open reports whether both directions are, and gives a channel that is closed
// by the next change.
func (r *rules) open() (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut == [2]bool{}, r.changed
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
