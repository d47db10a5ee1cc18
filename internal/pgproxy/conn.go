package pgproxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// Request codes, which a startup message has instead of a protocol version.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// code is the protocol version or request code of a startup message.
func (m message) code() uint32 { return binary.BigEndian.Uint32(m[4:]) }

func (m message) isCancel() bool { return m.code() == cancelRequest }

// conn is one client's connection and the one to the server for it.
//
// The server's messages are matched to the client's by counting: answers end
// with ReadyForQuery, one for the startup and one for each message that awaits
// it. So an answer is known by the number of its ReadyForQuery, also when the
// client has sent ahead.
type conn struct {
	proxy  *Proxy
	client net.Conn
	open   context.Context // ends when both connections are closed
	end    context.CancelFunc

	startup    message
	spare      net.Conn // the server connection that has no turn now; nil until it is needed
	downstream sync.WaitGroup

	mu      sync.Mutex
	servers []net.Conn
	asked   int          // messages forwarded whose answer ends with ReadyForQuery
	ready   int          // ReadyForQuery received
	readied *sync.Cond   // when ready or lost have changed
	dropped map[int]bool // numbers of ReadyForQuery that are not the client's
	catch   *Action      // whose answer is the one that ends with ReadyForQuery number catchAt
	catchAt int
	lost    bool // the server's side has ended
}

func newConn(p *Proxy, client net.Conn) *conn {
	open, end := context.WithCancel(context.Background())
	c := &conn{proxy: p, client: client, open: open, end: end, dropped: map[int]bool{}}
	c.readied = sync.NewCond(&c.mu)
	return c
}

// close cuts all connections. A second call does nothing.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.client.Close()
	for _, server := range c.servers {
		_ = server.Close()
	}
	c.end()
}

// dial connects to the server; close ends the attempt.
func (c *conn) dial() (net.Conn, error) {
	server, err := (&net.Dialer{}).DialContext(c.open, c.proxy.network, c.proxy.address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
		return nil, errors.Join(net.ErrClosed, server.Close())
	}
	c.servers = append(c.servers, server)
	return server, nil
}

// negotiate declines encryption and returns the first other message.
func (c *conn) negotiate() (message, error) {
	for {
		m, err := readStartup(c.client)
		if err != nil || m.code() != sslRequest && m.code() != gssRequest {
			return m, err
		}
		if _, err := c.client.Write([]byte{'N'}); err != nil {
			return nil, err
		}
	}
}

// cancel passes a CancelRequest on; both sides hang up when it was processed.
func (c *conn) cancel(server net.Conn, request message) {
	if _, err := server.Write(request); err == nil {
		_, _ = io.Copy(io.Discard, server)
	}
}

// pump forwards messages both ways until one side ends.
func (c *conn) pump(server net.Conn, startup message) {
	c.startup, c.asked = startup, 1
	if !c.proxy.gates[ToServer].wait(c.open.Done()) {
		return
	}
	if _, err := server.Write(startup); err != nil {
		return
	}
	c.downstream.Go(func() {
		c.toClient(server)
		c.close()
	})
	c.toServer(server)
	c.close()
	c.downstream.Wait()
}

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
