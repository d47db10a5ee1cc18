package netfault

import (
	"fmt"
	"maps"
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

// Cut holds back what is sent in a direction, until revert delivers it. Connections stay
// open and silent, and new ones are silent in both directions. Of several cuts the last one to
// be reverted opens the direction. A second call of revert is a no-op.
func (l *Link) Cut(d Direction) (revert func()) {
	r := l.rules
	return r.impose(func() { r.cuts[d]++ }, func() { r.cuts[d]-- })
}

// Delay delays what is sent in a direction, and what is already on its way, by latency plus or
// minus up to jitter, drawn for each packet. Order is kept. Several delays add up, until each
// is reverted. Connecting isn't delayed.
func (l *Link) Delay(d Direction, latency, jitter time.Duration) (revert func()) {
	r, late := l.rules, &delay{latency, jitter}
	return r.impose(func() { r.delays[d][late] = struct{}{} }, func() { delete(r.delays[d], late) })
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
// call is a no-op.
func (l *Link) Close() error {
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

// add registers a connection, unless the link is closed.
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
