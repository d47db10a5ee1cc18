package zklock

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Session learns from a client's connections what the client doesn't tell: the timeout that the server grants, and why
// it lets no session begin. Each client has one, by zk.WithDialer(session.Dial).
type Session struct {
	// Dialer makes the connections. Default: net.DialTimeout.
	Dialer zk.Dialer

	granted           atomic.Int64 // a time.Duration; 0 before the first session
	refused, wentBack atomic.Bool  // the last attempt to begin a session
}

// Dial is a zk.Dialer.
func (s *Session) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := s.dial(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &beginning{Conn: c, session: s, end: time.Now().Add(3 * timeout), again: func() (net.Conn, error) { return s.dial(network, address, timeout) }}, nil
}

func (s *Session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if s.Dialer != nil {
		return s.Dialer(network, address, timeout)
	}
	return net.DialTimeout(network, address, timeout)
}

// beginning is a connection whose first message in each direction is read along.
type beginning struct {
	net.Conn
	session      *Session
	end          time.Time
	again        func() (net.Conn, error)
	sent, answer []byte // their first bytes: length, version, and the last zxid that was seen or the timeout
}

func (b *beginning) Write(p []byte) (int, error) {
	b.sent = append(b.sent, p[:min(len(p), 16-len(b.sent))]...)
	return b.Conn.Write(p)
}

func (b *beginning) Read(p []byte) (int, error) {
	if len(b.answer) == 12 {
		return b.Conn.Read(p)
	}
	n, err := b.Conn.Read(p)
	b.answer = append(b.answer, p[:min(n, 12-len(b.answer))]...)
	done := len(b.answer) == 12
	if done || err != nil {
		b.session.wentBack.Store(!done && b.wentBack())
		b.session.refused.Store(!done)
	}
	if done {
		if ms := binary.BigEndian.Uint32(b.answer[8:]); ms > 0 { // 0: the session has expired
			b.session.granted.Store(int64(ms) * int64(time.Millisecond))
		}
	}
	return n, err
}

// SetReadDeadline keeps the client from waiting for minutes for a server that accepts connections and has stopped.
func (b *beginning) SetReadDeadline(t time.Time) error {
	if len(b.answer) < 12 {
		t = b.end
	}
	return b.Conn.SetReadDeadline(t)
}

// wentBack asks the server, which has closed the connection, whether that has seen more than it has.
func (b *beginning) wentBack() bool {
	c, err := b.again()
	if err != nil || len(b.sent) < 16 {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c, "srvr")
	answer, _ := io.ReadAll(io.LimitReader(c, 4096))
	_, zxid, _ := strings.Cut(string(answer), "\nZxid: ")
	var has uint64
	_, err = fmt.Sscanf(zxid, "0x%x", &has)
	return err == nil && has < binary.BigEndian.Uint64(b.sent[8:])
}
