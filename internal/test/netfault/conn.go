package netfault

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is a client's connection and its connection to the server.
type conn struct {
	link   *Link
	client *net.TCPConn
	open   context.Context // ends when it is reset
	end    context.CancelFunc

	mu       sync.Mutex
	server   *net.TCPConn // nil until dialled
	halfOpen bool
	ends     int // directions that have ended
}

func newConn(l *Link, client *net.TCPConn) *conn {
	open, end := context.WithCancel(context.Background())
	return &conn{link: l, client: client, open: open, end: end}
}

func (c *conn) serve() {
	early, err := c.await()
	if err == nil {
		err = c.dial()
	}
	if err != nil {
		c.reset()
		c.link.remove(c)
		return
	}
	sent := io.MultiReader(bytes.NewReader(early), c.client)
	go (&pipe{conn: c, direction: ToServer, from: c.client, to: c.server, source: sent}).carry()
	go (&pipe{conn: c, direction: ToClient, from: c.server, to: c.client, source: c.server}).carry()
}

// await waits until the link is open both ways, and returns what the client has sent meanwhile. It fails if
// the client has given up.
func (c *conn) await() ([]byte, error) {
	if open, _ := c.link.rules.open(); open {
		return nil, nil
	}
	left, leave := context.WithCancel(c.open)
	defer leave()
	go func() {
		if c.link.rules.await(left.Done()) {
			_ = c.client.SetReadDeadline(time.Unix(0, 0))
		}
	}()
	early, err := io.ReadAll(c.client)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, net.ErrClosed
	}
	return early, c.client.SetReadDeadline(time.Time{})
}

// dial connects to the server. A reset ends the attempt.
func (c *conn) dial() error {
	server, err := new(net.Dialer).DialContext(c.open, "tcp", c.link.upstream)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server.(*net.TCPConn) // if the client was reset meanwhile, the pipes reset it
	return nil
}

// obeyHalfOpen doesn't return before the reset of a half-open connection.
func (c *conn) obeyHalfOpen() {
	c.mu.Lock()
	halfOpen := c.halfOpen
	c.mu.Unlock()
	if halfOpen {
		<-c.open.Done()
	}
}

func (c *conn) vanish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halfOpen = true
}

func (c *conn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	abort(c.client)
	if c.server != nil {
		abort(c.server)
	}
	c.end() // last: what HalfOpen has held back must not reach the sockets now
}

func (c *conn) ended() {
	c.mu.Lock()
	c.ends++
	last := c.ends == 2
	c.mu.Unlock()
	if last {
		_ = c.client.Close()
		_ = c.server.Close()
		c.link.remove(c)
	}
}

// pipe is one direction of a connection: it reads from one end and writes to the other.
type pipe struct {
	conn      *conn
	direction Direction
	from, to  *net.TCPConn
	source    io.Reader // from, and before it what has been read of it
	broken    bool      // reading ended with a reset
}

type chunk struct {
	bytes []byte
	at    time.Time
}

// A pipe holds this many chunks of at most this size: with few, a delay would limit the throughput too.
const (
	maxChunks = 1024
	chunkSize = 32 << 10
)

// carry moves what is sent, when the rules let it, until the sender has ended the connection.
func (p *pipe) carry() {
	chunks := make(chan chunk, maxChunks)
	go p.read(chunks)
	for c := range chunks {
		p.conn.link.rules.pass(p.direction, c.at)
		p.write(c.bytes)
	}
	p.conn.link.rules.pass(p.direction, time.Now())
	p.close()
}

func (p *pipe) read(chunks chan<- chunk) {
	defer close(chunks)
	buffer := make([]byte, chunkSize)
	for {
		n, err := p.source.Read(buffer)
		if n > 0 {
			chunks <- chunk{append([]byte(nil), buffer[:n]...), time.Now()}
		}
		if err != nil {
			p.broken = err != io.EOF
			return
		}
	}
}

// write delivers. If it can't, the receiver has gone, and the sender gets a reset when the
// way back is open; what is read until then is lost.
func (p *pipe) write(b []byte) {
	p.conn.obeyHalfOpen()
	if _, err := p.to.Write(b); err != nil {
		p.conn.link.rules.pass(1-p.direction, time.Now())
		abort(p.from)
	}
}

func (p *pipe) close() {
	p.conn.obeyHalfOpen()
	if p.broken {
		abort(p.to)
	} else {
		_ = p.to.CloseWrite()
	}
	p.conn.ended()
}

// abort closes a socket with an RST instead of a FIN.
func abort(socket *net.TCPConn) {
	_ = socket.SetLinger(0)
	_ = socket.Close()
}
