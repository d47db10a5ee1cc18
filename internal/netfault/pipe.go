package netfault

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// pipe is one direction of a connection. It reads from one end and writes to the
// other, each in a goroutine of the engine's.
type pipe struct {
	conn      *conn
	direction Direction
	from, to  *net.TCPConn
	source    io.Reader // from, and before it what has been read of it
	broken    atomic.Bool
}

// Read reads what was sent.
func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.source.Read(b)
	if err != nil && err != io.EOF {
		p.broken.Store(true)
	}
	return n, err
}

// Write delivers. If it can't, the receiver has gone, and the sender gets a reset when the
// way back is open. It never returns an error: toxiproxy would leak goroutines.
func (p *pipe) Write(b []byte) (int, error) {
	p.conn.obeyHalfOpen()
	if _, err := p.to.Write(b); err != nil {
		p.conn.link.rules.pass(1-p.direction, time.Now())
		abort(p.from)
	}
	return len(b), nil
}

// Close ends the receiver's side as the sender's has ended.
func (p *pipe) Close() error {
	p.conn.obeyHalfOpen()
	if p.broken.Load() {
		abort(p.to)
	} else {
		_ = p.to.CloseWrite()
	}
	p.conn.ended()
	return nil
}

// abort closes a socket with an RST instead of a FIN. Its peer, if any, gets nothing more of
// what was written.
func abort(socket *net.TCPConn) {
	_ = socket.SetLinger(0)
	_ = socket.Close()
}
