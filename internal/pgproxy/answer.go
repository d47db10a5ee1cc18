package pgproxy

import (
	"bufio"
	"io"
)

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
