package netfault

import (
	"io"
	"net"
	"time"
)

// pipe is one direction of a connection: it reads from one end and writes to the other.
type pipe struct {
	conn      *conn
	direction Direction
	from, to  *net.TCPConn
	source    io.Reader // from, and before it what has been read of it
	broken    bool      // reading ended with a reset
}

// chunk is what was sent at a time.
type chunk struct {
	bytes []byte
	at    time.Time
}

// A pipe holds this many chunks of at most this size: with few, a delay would limit the
// throughput too.
const (
	maxChunks = 1024
	chunkSize = 32 << 10
)

// carry moves what is sent until the sender has ended the connection, and ends the receiver's
// side then. What is sent passes when the rules let it.
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

// read reads what is sent until the end.
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

// close ends the receiver's side as the sender's has ended.
func (p *pipe) close() {
	p.conn.obeyHalfOpen()
	if p.broken {
		abort(p.to)
	} else {
		_ = p.to.CloseWrite()
	}
	p.conn.ended()
}

// abort closes a socket with an RST instead of a FIN. Its peer, if any, gets nothing more of
// what was written.
func abort(socket *net.TCPConn) {
	_ = socket.SetLinger(0)
	_ = socket.Close()
}
