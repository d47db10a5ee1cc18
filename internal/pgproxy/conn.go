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

const (
	headerLen = 5 // type and length
	// maxMessage is Postgres's own limit of a message, in bytes.
	maxMessage = 1 << 30
)

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
func readMessage(r io.Reader) (message, error) { return readFrom(r, headerLen, 1) }

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
//
// The server's messages are matched to the client's by counting: answers end with ReadyForQuery,
// one for the startup and one for each message that awaits it. So an answer is known by the number
// of its ReadyForQuery, also when the client has sent ahead.
type conn struct {
	proxy  *Proxy
	client net.Conn
	open   context.Context // ends when both connections are closed
	end    context.CancelFunc

	mu      sync.Mutex
	server  net.Conn     // nil until dialled
	asked   int          // messages forwarded whose answer ends with ReadyForQuery
	ready   int          // ReadyForQuery received
	dropped map[int]bool // numbers of ReadyForQuery that are not the client's
	catch   *Action      // whose answer is the one that ends with ReadyForQuery number catchAt
	catchAt int
	lost    bool // the server's side has ended
}

// newConn is called with p.mu locked.
func newConn(p *Proxy, client net.Conn) *conn {
	c := &conn{proxy: p, client: client, dropped: map[int]bool{}}
	c.open, c.end = context.WithCancel(p.present)
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
	c.asked = 1
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
		if runs && !c.expecting() {
			a = c.proxy.decide(sql)
		}
		if a == nil {
			err = c.forward(m)
		} else {
			err = c.apply(a, r, m, sql)
		}
		if err == nil && m.kind() == typeExecute && c.proxy.splits.Load() {
			c.mu.Lock()
			c.dropped[c.asked+1] = true
			c.mu.Unlock()
			err = c.forward(message{typeSync, 0, 0, 0, 4})
		}
		if err != nil {
			return
		}
	}
}

// forward sends a message to the server.
func (c *conn) forward(m message) error {
	c.count(m)
	_, err := c.server.Write(m)
	return err
}

// count notes that the server is about to be asked.
func (c *conn) count(m message) {
	if m.awaitsReady() {
		c.mu.Lock()
		c.asked++
		c.mu.Unlock()
	}
}

// apply does what the Action says to the message m, which runs sql; r has those after it. It returns
// an error when the connection is not to go on.
func (c *conn) apply(a *Action, r *bufio.Reader, m message, sql string) error {
	switch a.kind {
	case swallowCommit:
		c.close()
		a.finish(ErrNotForwarded)
		close(a.done)
		return net.ErrClosed
	case swallowReply:
		c.expect(a)
		return c.forward(m)
	case holdCommit:
		return c.hold(a, r, m)
	case instead:
		throughSync(r, m)
		return c.replace(a, sql)
	default:
		return c.truncate(a, m)
	}
}

// hold keeps a statement, with all that belongs to it through Sync, until it is to be delivered,
// and the connection until the server has answered.
func (c *conn) hold(a *Action, r *bufio.Reader, m message) error {
	kept := throughSync(r, m)
	_ = c.client.Close()
	close(a.done)
	if !c.awaitDelivery(a) {
		return net.ErrClosed
	}
	c.expect(a)
	for _, m := range kept {
		if err := c.forward(m); err != nil {
			c.lose()
			return err
		}
	}
	<-a.answered
	return net.ErrClosed
}

// throughSync returns m and all that the client sends with it; less if it sends no more.
func throughSync(r *bufio.Reader, m message) []message {
	all := []message{m}
	for !m.awaitsReady() {
		var err error
		if m, err = readMessage(r); err != nil {
			break
		}
		all = append(all, m)
	}
	return all
}

// truncate sends the first bytes of a message, and the rest when it is to be delivered.
func (c *conn) truncate(a *Action, m message) error {
	first := min(a.forward, len(m)-1)
	_, err := c.server.Write(m[:first])
	close(a.done)
	if err != nil || !c.awaitDelivery(a) {
		a.finish(ErrNotForwarded)
		return net.ErrClosed
	}
	c.expect(a)
	c.count(m)
	_, err = c.server.Write(m[first:])
	return err
}

// awaitDelivery reports whether the rest is to be forwarded; if not, the connections are cut.
func (c *conn) awaitDelivery(a *Action) bool {
	select {
	case deliver := <-a.deliver:
		if deliver {
			return true
		}
	case <-c.open.Done():
	}
	c.close()
	a.finish(ErrNotForwarded)
	return false
}

// replace answers a statement as a says.
func (c *conn) replace(a *Action, sql string) error {
	words := a.act(c.ask, sql)
	defer close(a.done)
	defer a.finish(nil)
	var answer []byte
	for _, word := range words {
		var err error
		if answer, err = word.Encode(answer); err != nil {
			return err
		}
	}
	if len(answer) == 0 {
		c.close()
		return net.ErrClosed
	}
	_, err := c.client.Write(answer)
	return err
}

// ask has the server answer sql, and keeps the answer from the client.
func (c *conn) ask(sql string) []pgproto3.BackendMessage {
	m, err := (&pgproto3.Query{String: sql}).Encode(nil)
	if err != nil {
		return nil
	}
	a := newAction(instead)
	c.expect(a)
	if c.forward(m) != nil {
		c.lose()
	}
	<-a.answered
	return a.words
}

// toClient forwards the server's messages, and collects those that an Action waits for, until the
// server's connection ends.
func (c *conn) toClient() {
	defer c.lose()
	r := bufio.NewReader(c.server)
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		a, last, ours, err := c.observe(m)
		if err != nil {
			return
		}
		if !ours && (a == nil || a.kind == truncate) {
			_, _ = c.client.Write(m) // a dead client is noticed where it is read from
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

// observe counts a message of the server. If it belongs to an answer that an Action waits for, it is
// noted there; last says that the answer is complete. ours says that the message is none of the
// client's.
func (c *conn) observe(m message) (a *Action, last, ours bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.catch != nil && c.ready+1 == c.catchAt {
		a = c.catch
		var word pgproto3.BackendMessage // shares no memory with another
		word, err = pgproto3.NewFrontend(bytes.NewReader(m), nil).Receive()
		a.words = append(a.words, word)
	}
	if m.kind() != typeReadyForQuery {
		return a, false, false, err
	}
	c.ready++
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
