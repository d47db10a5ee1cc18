// Package delay adds latency to the connections between clients and a server.
//
// internal/netfault can delay too, but to a millisecond at best, since the timers of an idle
// Go program are no finer: half a millisecond for a round trip becomes more than two. A Link
// carries bytes and nothing else, and its timers are the kernel's.
//
// Links run in a process of their own (Serve), so that what they cost counts neither as the
// client's CPU time nor as the server's. It is there all the same: on a machine without idle
// CPUs, contenders that send more messages also pay for more work of the links.
package delay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Order is what a process of links is told on its standard input.
type Order struct {
	Each      time.Duration // what is sent by either side is delayed by
	Upstreams []string
}

// Serve is the whole process: it reads an Order, answers with the addresses of the links in
// the order of their upstreams, and carries until its input ends.
func Serve(in io.Reader, out io.Writer) error {
	var order Order
	from := json.NewDecoder(in)
	if err := from.Decode(&order); err != nil {
		return fmt.Errorf("delay: %w", err)
	}
	var addresses []string
	for _, upstream := range order.Upstreams {
		l, err := Listen(upstream, order.Each)
		if err != nil {
			return fmt.Errorf("delay: %w", err)
		}
		defer l.Close()
		go l.Serve()
		addresses = append(addresses, l.Addr())
	}
	if err := json.NewEncoder(out).Encode(addresses); err != nil {
		return fmt.Errorf("delay: %w", err)
	}
	_, err := io.Copy(io.Discard, io.MultiReader(from.Buffered(), in))
	return err
}

// Link listens on the loopback and connects to a server for each client. What either side
// sends arrives after a delay, complete and in order.
type Link struct {
	upstream string
	delay    time.Duration
	listener net.Listener
}

// Listen returns a link to a server's host:port that delays what is sent by each side; a
// round trip takes twice that longer. Serve has to be called on it.
func Listen(upstream string, each time.Duration) (*Link, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &Link{upstream: upstream, delay: each, listener: listener}, nil
}

// Addr is where the link listens, as host:port.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Serve carries connections until Close.
func (l *Link) Serve() error {
	for {
		client, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go l.serve(client)
	}
}

// Close stops listening; connections go on until an end closes them.
func (l *Link) Close() error { return l.listener.Close() }

// serve carries one connection until both directions have ended.
func (l *Link) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp4", l.upstream)
	if err != nil {
		return // the client sees its connection end
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.carry(server, client)
	}()
	l.carry(client, server)
	<-done
}

// chunk is what arrived at once; no bytes mean the end.
type chunk struct {
	bytes []byte
	due   time.Time
}

// carry moves bytes in one direction until their sender has ended the connection, or the
// receiver is gone.
func (l *Link) carry(to, from net.Conn) {
	chunks := make(chan chunk, 1024)
	go func() {
		defer close(chunks)
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				chunks <- chunk{append([]byte(nil), buffer[:n]...), time.Now().Add(l.delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	if err := deliver(to, chunks); err != nil {
		_ = from.Close()
	}
	for range chunks { // until the reader has ended
	}
}

// deliver writes each chunk when it is due, and then ends the receiver's side.
func deliver(to net.Conn, chunks <-chan chunk) error {
	t, err := newTimer()
	if err != nil {
		return err
	}
	defer t.close()
	for c := range chunks {
		if err := t.wait(c.due); err != nil {
			return err
		}
		if _, err := to.Write(c.bytes); err != nil {
			return err
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return io.ErrClosedPipe
}
