package pgproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Message types, as in the first byte of a message.
const (
	typeQuery         = 'Q'
	typeExecute       = 'E'
	typeSync          = 'S'
	typeFunctionCall  = 'F'
	typeReadyForQuery = 'Z'
)

// Request codes, which a startup message has instead of a protocol version.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// maxMessage is Postgres's own limit of a message, in bytes.
const maxMessage = 1 << 30

// message is one message as it is on the wire, header included.
type message []byte

func (m message) kind() byte { return m[0] }

// code is the protocol version or request code of a startup message.
func (m message) code() uint32 { return binary.BigEndian.Uint32(m[4:]) }

// awaitsReady reports whether the server ends its answer to this client message with ReadyForQuery.
func (m message) awaitsReady() bool {
	return m.kind() == typeQuery || m.kind() == typeSync || m.kind() == typeFunctionCall
}

// readMessage reads a message that has a type.
func readMessage(r io.Reader) (message, error) { return readFrom(r, 5, 1) }

// readStartup reads a message without a type, as a connection begins with: length, and protocol
// version or request code.
func readStartup(r io.Reader) (message, error) { return readFrom(r, 8, 0) }

// readFrom reads a message with a header of that length. The length at lengthAt counts itself and
// all that follows.
func readFrom(r io.Reader, header, lengthAt int) (message, error) {
	m := make(message, header)
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	total := int64(lengthAt) + int64(binary.BigEndian.Uint32(m[lengthAt:]))
	if total < int64(header) || total > maxMessage {
		return nil, fmt.Errorf("pgproxy: message of %d bytes", total)
	}
	m = append(m, make(message, total-int64(header))...)
	_, err := io.ReadFull(r, m[header:])
	return m, err
}

// conn is one client's connection and the one to the server for it.
type conn struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn        // nil until dialled
	open   context.Context // ends when both connections are closed
	end    context.CancelFunc

	mu       sync.Mutex
	changed  *sync.Cond                 // of pending and lost
	pending  int                        // messages whose answer, which ends with ReadyForQuery, has yet to come
	collects *[]pgproto3.BackendMessage // gets the next answer in the client's place, unless nil
	lost     bool                       // the server's side has ended
}

func newConn(p *Proxy, client net.Conn) *conn {
	c := &conn{proxy: p, client: client}
	c.changed = sync.NewCond(&c.mu)
	c.open, c.end = context.WithCancel(p.open)
	context.AfterFunc(c.open, c.close)
	return c
}

// close cuts both connections. A second call does nothing.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
	c.end()
}

// serve connects the client to the server until either ends.
func (c *conn) serve() {
	defer c.close()
	startup, err := c.negotiate()
	if err != nil || c.dial() != nil {
		return
	}
	c.pending = 1
	if _, err := c.server.Write(startup); err != nil {
		return
	}
	if startup.code() == cancelRequest {
		_, _ = io.Copy(io.Discard, c.server) // it hangs up when it has processed the request
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		c.toClient()
		c.close()
	})
	c.toServer()
	c.close()
	answers.Wait()
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

// dial connects to the server; close ends the attempt.
func (c *conn) dial() error {
	server, err := (&net.Dialer{}).DialContext(c.open, c.proxy.network, c.proxy.address)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
		return errors.Join(net.ErrClosed, server.Close())
	}
	c.server = server
	return nil
}

// toServer forwards the client's messages, but for what an Action does to them, until the client's
// connection ends.
func (c *conn) toServer() {
	r := bufio.NewReader(c.client)
	known := statements{map[string]string{}, map[string]string{}}
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		sql, runs, err := known.runs(m)
		if err != nil {
			return
		}
		var a *Action
		if runs {
			a = c.proxy.decide(sql)
		}
		switch {
		case a != nil:
			c.settle()
			err = a.act(c, r, m, sql)
		case m.kind() == typeExecute && c.proxy.splits.Load():
			err = c.split(m)
		default:
			err = c.forward(m)
		}
		if err != nil {
			return
		}
	}
}

// forward sends a message to the server.
func (c *conn) forward(m message) error {
	if m.awaitsReady() {
		c.mu.Lock()
		c.pending++
		c.mu.Unlock()
	}
	_, err := c.server.Write(m)
	return err
}

// settle waits until the client has all answers to what was forwarded.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pending > 0 && !c.lost {
		c.changed.Wait()
	}
}

// ask has the server answer messages, of which the last one awaits it, and keeps the answer from the client, who has all
// earlier ones. It fails with ErrServerGone and what had arrived if the server's side ends first.
func (c *conn) ask(messages ...message) (words []pgproto3.BackendMessage, err error) {
	c.settle()
	c.mu.Lock()
	c.collects = &words
	c.pending++
	c.mu.Unlock()
	for _, m := range messages {
		_, _ = c.server.Write(m) // a dead server is noticed where it is read from
	}
	c.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending > 0 {
		err = ErrServerGone
	}
	return words, err
}

// answer sends the client words in the server's place.
func (c *conn) answer(words []pgproto3.BackendMessage) (err error) {
	var text []byte
	for _, word := range words {
		if text, err = word.Encode(text); err != nil {
			return err
		}
	}
	_, err = c.client.Write(text)
	return err
}

// split sends a Sync after an Execute, and drops the ReadyForQuery that answers it.
func (c *conn) split(execute message) error {
	words, err := c.ask(execute, message{typeSync, 0, 0, 0, 4})
	if err != nil {
		return err
	}
	return c.answer(words[:len(words)-1])
}

// toClient forwards the server's messages, but for those that ask collects, until the server's connection ends.
func (c *conn) toClient() {
	defer c.lose()
	r := bufio.NewReader(c.server)
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		collected, err := c.collect(m)
		if err != nil {
			return
		}
		if !collected {
			_, _ = c.client.Write(m) // a dead client is noticed where it is read from
		}
		if m.kind() == typeReadyForQuery {
			c.mu.Lock()
			c.pending--
			c.changed.Broadcast()
			c.mu.Unlock()
		}
	}
}

// collect notes a message of an answer that ask awaits, and reports whether it is of one.
func (c *conn) collect(m message) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.collects == nil {
		return false, nil
	}
	word, err := pgproto3.NewFrontend(bytes.NewReader(m), nil).Receive() // shares no memory with another
	*c.collects = append(*c.collects, word)
	if m.kind() == typeReadyForQuery {
		c.collects = nil
	}
	return true, err
}

// lose ends the wait for answers that can't come any more.
func (c *conn) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost, c.collects = true, nil
	c.changed.Broadcast()
}
