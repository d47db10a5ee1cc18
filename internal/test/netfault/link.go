// Package netfault is a TCP link between a client and a server that can be broken, as a network
// breaks: silently, in one direction, slowly, or by a reset. It ignores the protocol.
//
// # Model
//
//  1. What was sent in one direction arrives in order and complete, or the connection ends before
//     it. No byte is lost from the middle of a stream.
//  2. Cut holds back what is sent in its direction, a connection's end included, until it is
//     reverted. The other direction goes on.
//  3. A connection that begins while either direction is cut reaches the server after the cut is
//     reverted, unless the client has given up by then: a handshake needs both.
//  4. A reset of one end reaches the other as a reset, and an orderly end as an orderly end.
//  5. Faults don't revert each other: each lasts until it is reverted itself.
//
// A fault applies to what is sent after its method has returned; bytes that are being written at
// that moment may still arrive, as a packet on the wire does, and a connection whose first byte
// hasn't arrived yet may count as a new one.
//
// # What is not promised
//
// The client's kernel talks to this machine's, never to the server's: connecting succeeds even while
// nothing passes, a server that is down shows as a reset right after, and TCP's own keep-alive is
// answered. Only the time limits of the protocol above can notice a silence.
package netfault

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Link is between clients and one server. Its methods may be called concurrently. They never
// wait for either end.
type Link struct {
	upstream string
	listener *net.TCPListener
	rules    *rules

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	wg     sync.WaitGroup // of the accepting and of conns
}

// New starts a link to a server's host:port. It doesn't contact the server. It
// fails if that isn't an address, or no port is free. The caller closes it.
func New(upstream string) (*Link, error) {
	if _, _, err := net.SplitHostPort(upstream); err != nil {
		return nil, fmt.Errorf("netfault: the server has to be host:port: %w", err)
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	l := &Link{upstream: upstream, listener: listener, rules: newRules(), conns: map[*conn]struct{}{}}
	l.wg.Go(l.accept)
	return l, nil
}

// Addr is where the link listens, as host:port.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut holds back what is sent in the directions, until revert delivers it. Connections stay open and
// silent, and new ones are silent in both directions. Of several cuts the last one to be reverted
// opens a direction. A second call of revert is a no-op.
func (l *Link) Cut(directions ...Direction) (revert func()) {
	add := func(n int) func() {
		return func() {
			for _, d := range directions {
				l.rules.cuts[d] += n
			}
		}
	}
	return l.rules.impose(add(1), add(-1))
}

// Delay delays what is sent in the directions, and what is already on its way, by latency plus or
// minus up to jitter, drawn for each packet. Order is kept. Several delays add up, until each is
// reverted. Connecting isn't delayed.
func (l *Link) Delay(latency, jitter time.Duration, directions ...Direction) (revert func()) {
	delays, late := &l.rules.delays, &delay{latency, jitter}
	return l.rules.impose(func() {
		for _, d := range directions {
			delays[d][late] = struct{}{}
		}
	}, func() {
		for _, d := range directions {
			delete(delays[d], late)
		}
	})
}

// HalfOpen makes every present connection half-open: it carries nothing more in either
// direction, and neither end sees an error, until revert, Reset or Close resets it, as a far
// end does that restarted. New connections work.
func (l *Link) HalfOpen() (revert func()) {
	vanished := l.present()
	for _, c := range vanished {
		c.vanish()
	}
	return func() { reset(vanished) }
}

// Reset sends an RST to both ends of every present connection, even during a Cut. What
// hadn't arrived is lost. New connections work.
func (l *Link) Reset() { reset(l.present()) }

// Close stops listening, resets all connections and returns when they have ended. A second
// call is a no-op, and so is one of a nil Link.
func (l *Link) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if again {
		return nil
	}
	err := l.listener.Close()
	l.Reset()
	l.rules.change(func() { l.rules.closed = true })
	l.wg.Wait()
	return err
}

func (l *Link) accept() {
	for {
		client, err := l.listener.AcceptTCP()
		if err != nil {
			return // closed
		}
		if c := newConn(l, client); l.add(c) {
			go c.serve()
		} else {
			c.reset()
		}
	}
}

func (l *Link) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.conns[c] = struct{}{}
	l.wg.Add(1)
	return true
}

func (l *Link) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.wg.Done()
}

func (l *Link) present() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}

func reset(conns []*conn) {
	for _, c := range conns {
		c.reset()
	}
}

// Direction is one of the two ways of a connection.
type Direction int

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

// impose changes the rules by begin until lift changes them back by end. A second call of lift is a no-op.
func (r *rules) impose(begin, end func()) (lift func()) {
	r.change(begin)
	return sync.OnceFunc(func() { r.change(end) })
}

// late is called with r.mu locked.
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
		cut, due, closed, changed := r.cuts[d] > 0, came.Add(r.late(d)), r.closed, r.changed
		r.mu.Unlock()
		switch {
		case closed:
			return
		case cut:
			<-changed
		case waitUntil(due, changed):
			return
		}
	}
}

// waitUntil reports false if changed came first. The timers of an idle Go program
// wait for whole milliseconds: the last ones are left to the kernel.
func waitUntil(due time.Time, changed <-chan struct{}) bool {
	const coarse = 2 * time.Millisecond
	if left := time.Until(due); left > coarse {
		select {
		case <-time.After(left - coarse):
		case <-changed:
			return false
		}
	}
	if left := time.Until(due); left > 0 {
		sleep(left)
	}
	return true
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
