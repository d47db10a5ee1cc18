package pgproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
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

// toClient forwards the server's messages, and collects those that an Action
// waits for, until the server's connection ends.
func (c *conn) toClient(server io.Reader) {
	defer c.lose()
	r := bufio.NewReader(server)
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		a, last, ours, err := c.observe(m)
		if err != nil {
			return
		}
		if ours {
			continue
		}
		if a == nil || a.kind == truncate {
			if !c.proxy.gates[ToClient].wait(c.open.Done()) {
				return
			}
			// A dead client is noticed where it is read from.
			_, _ = c.client.Write(m)
		}
		if last {
			c.answered(a, nil)
		}
	}
}

// expect has the answer to the next message that awaits one collected for a.
func (c *conn) expect(a *Action) {
	c.mu.Lock()
	lost := c.lost
	if !lost {
		c.catch, c.catchAt = a, c.asked+1
	}
	c.mu.Unlock()
	if lost {
		c.answered(a, ErrServerGone)
	}
}

// expecting reports whether an Action of this connection awaits its answer.
func (c *conn) expecting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catch != nil
}

// observe counts a message of the server. If it belongs to an answer that an
// Action waits for, it is noted there; last says that the answer is complete. ours says that the
// message is none of the client's.
func (c *conn) observe(m message) (a *Action, last, ours bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.catch != nil && c.ready+1 == c.catchAt {
		a = c.catch
		err = a.add(m)
	}
	if m.kind() != typeReadyForQuery {
		return a, false, false, err
	}
	c.ready++
	c.readied.Broadcast()
	if a == nil {
		return nil, false, c.dropped[c.ready], err
	}
	c.catch = nil
	return a, true, false, err
}

// lose ends the wait for an answer that can't come any more.
func (c *conn) lose() {
	c.mu.Lock()
	c.lost = true
	c.readied.Broadcast()
	a := c.catch
	c.catch = nil
	c.mu.Unlock()
	if a != nil {
		c.answered(a, ErrServerGone)
	}
}

// answered completes an Action whose answer has come, or never will.
func (c *conn) answered(a *Action, err error) {
	if a.kind == swallowReply {
		c.close()
		close(a.done)
	}
	a.finish(err)
}

// Ask sends the server a Query message and returns its answer, through
// ReadyForQuery or to the end of the connection.
type Ask func(sql string) []pgproto3.BackendMessage

// Instead has act answer a Query message instead of the server, as a pooler does that splits
// messages, sends them again, or has its own errors. act may ask the server any number of
// times. The client gets what act returns; if that is nothing, both connections are cut.
// Done: the client has got the answer.
func Instead(act func(ask Ask, sql string) []pgproto3.BackendMessage) *Action {
	a := newAction(instead)
	a.act = act
	return a
}

// replace answers the Query message m as a says.
func (c *conn) replace(a *Action, server net.Conn, m message) error {
	var q pgproto3.Query
	if err := q.Decode(m.body()); err != nil {
		return err
	}
	words := a.act(func(sql string) []pgproto3.BackendMessage { return c.ask(server, sql) }, q.String)
	defer close(a.done)
	defer a.finish(nil)
	var answer []byte
	for _, word := range words {
		var err error
		if answer, err = word.Encode(answer); err != nil {
			return err
		}
	}
	if len(answer) == 0 {
		c.close()
		return net.ErrClosed
	}
	_, err := c.client.Write(answer)
	return err
}

// ask has the server answer sql, and keeps the answer from the client.
func (c *conn) ask(server net.Conn, sql string) []pgproto3.BackendMessage {
	m, err := (&pgproto3.Query{String: sql}).Encode(nil)
	if err != nil {
		return nil
	}
	a := newAction(instead)
	c.expect(a)
	if c.forward(server, m) != nil {
		c.lose()
	}
	<-a.answered
	return a.words
}

// decode returns a message of the server's that shares no memory with another.
func (m message) decode() (pgproto3.BackendMessage, error) {
	return pgproto3.NewFrontend(bytes.NewReader(m), nil).Receive()
}
