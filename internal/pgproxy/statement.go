package pgproxy

import (
	"bufio"
	"net"
)

// toServer forwards the client's messages, but for what an Action does to
// them, until the client's connection ends.
func (c *conn) toServer(server net.Conn) {
	r := bufio.NewReader(c.client)
	known := newStatements()
	for begins := true; ; {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		if server, err = c.turn(server, begins); err != nil {
			return
		}
		begins = m.awaitsReady()
		sql, runs, err := known.runs(m)
		if err != nil {
			return
		}
		var a *Action
		if runs && !c.expecting() {
			a = c.proxy.decide(sql)
		}
		if a == nil {
			err = c.forward(server, m)
		} else {
			err = c.apply(a, server, r, m)
		}
		if err == nil {
			err = c.split(server, m)
		}
		if err != nil {
			return
		}
	}
}

// forward sends a message to the server.
func (c *conn) forward(server net.Conn, m message) error {
	if !c.proxy.gates[ToServer].wait(c.open.Done()) {
		return net.ErrClosed
	}
	c.count(m)
	_, err := server.Write(m)
	return err
}

// count notes that the server is about to be asked.
func (c *conn) count(m message) {
	if m.awaitsReady() {
		c.mu.Lock()
		c.asked++
		c.mu.Unlock()
	}
}

// apply does what the Action says to the message m; r has those after it. It
// returns an error when the connection is not to go on.
func (c *conn) apply(a *Action, server net.Conn, r *bufio.Reader, m message) error {
	switch a.kind {
	case swallowCommit:
		c.close()
		a.finish(ErrNotForwarded)
		close(a.done)
		return net.ErrClosed
	case swallowReply:
		c.expect(a)
		return c.forward(server, m)
	case holdCommit:
		return c.hold(a, server, r, m)
	case instead:
		return c.replace(a, server, m)
	default:
		return c.truncate(a, server, m)
	}
}

// hold keeps a statement, with all that belongs to it through Sync, until it
// is to be delivered, and the connection until the server has answered.
func (c *conn) hold(a *Action, server net.Conn, r *bufio.Reader, m message) error {
	kept := []message{m}
	for !m.awaitsReady() {
		var err error
		if m, err = readMessage(r); err != nil {
			break // the client sent no more: what it sent is held all the same
		}
		kept = append(kept, m)
	}
	_ = c.client.Close()
	close(a.done)
	if !c.awaitDelivery(a) {
		return net.ErrClosed
	}
	c.expect(a)
	for _, m := range kept {
		if err := c.forward(server, m); err != nil {
			c.lose()
			return err
		}
	}
	<-a.answered
	return net.ErrClosed
}

// truncate sends the first bytes of a message, and the rest when it is to be
// delivered.
func (c *conn) truncate(a *Action, server net.Conn, m message) error {
	if !c.proxy.gates[ToServer].wait(c.open.Done()) {
		a.finish(ErrNotForwarded)
		close(a.done)
		return net.ErrClosed
	}
	first := min(a.forward, len(m)-1)
	_, err := server.Write(m[:first])
	close(a.done)
	if err != nil || !c.awaitDelivery(a) {
		a.finish(ErrNotForwarded)
		return net.ErrClosed
	}
	c.expect(a)
	c.count(m)
	_, err = server.Write(m[first:])
	return err
}

// awaitDelivery reports whether the rest is to be forwarded; if not, the
// connections are cut.
func (c *conn) awaitDelivery(a *Action) bool {
	select {
	case <-a.deliver:
		return true
	case <-a.drop:
	case <-c.open.Done():
	}
	c.close()
	a.finish(ErrNotForwarded)
	return false
}
