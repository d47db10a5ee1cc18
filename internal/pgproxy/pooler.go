package pgproxy

import (
	"bufio"
	"net"
)

// SwitchServers lets each request of a client go to another one of two server connections, in turn,
// as behind a pooler that takes a connection back at the first ReadyForQuery, transaction or not. The
// server must let the second one in without a password.
func (p *Proxy) SwitchServers() { p.switches.Store(true) }

// SplitPipelines sends a Sync after each Execute, and drops the ReadyForQuery that answers it, as a
// pooler does that takes pipelined statements for separate ones. It is not for connections on which
// an Action acts.
func (p *Proxy) SplitPipelines() { p.splits.Store(true) }

// turn returns the server connection for the client's next message, which begins a request if the
// one before it has ended.
func (c *conn) turn(server net.Conn, begins bool) (net.Conn, error) {
	if !begins || !c.proxy.switches.Load() {
		return server, nil
	}
	c.mu.Lock()
	for c.ready < c.asked && !c.lost {
		c.readied.Wait()
	}
	next := c.spare
	c.mu.Unlock()
	if next == nil {
		var err error
		if next, err = c.login(); err != nil {
			return nil, err
		}
	}
	c.spare = server
	return next, nil
}

// login opens another server connection, whose answers go to the client from now on.
func (c *conn) login() (net.Conn, error) {
	server, err := c.dial()
	if err != nil {
		return nil, err
	}
	if _, err := server.Write(c.startup); err != nil {
		return nil, err
	}
	r := bufio.NewReader(server)
	for {
		m, err := readMessage(r)
		if err != nil {
			return nil, err
		}
		if m.kind() == typeReadyForQuery {
			c.downstream.Go(func() {
				c.toClient(r)
				c.close()
			})
			return server, nil
		}
	}
}

// split ends a statement of a pipeline, if the proxy splits those.
func (c *conn) split(server net.Conn, m message) error {
	if m.kind() != typeExecute || !c.proxy.splits.Load() {
		return nil
	}
	c.mu.Lock()
	c.dropped[c.asked+1] = true
	c.mu.Unlock()
	return c.forward(server, message{typeSync, 0, 0, 0, 4})
}
