package pgproxy

import (
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
