// Package pgproxy is a TCP proxy in the test's own process that understands
// enough of the Postgres protocol to lose, hold, cut or answer exactly one
// COMMIT.
//
// # Model
//
// A Proxy listens on the loopback and dials the server for each client.
// Messages are forwarded whole and byte for byte. A rule (OnCommit, OnQuery)
// sees the SQL of each statement that is about to be run and may return an
// Action for it; nil passes it on. Statements of the extended protocol are
// seen at their Execute, not at Parse.
//
// A test waits by channels and never sleeps: an Action's Done is closed when what it
// describes has happened, and its Answer is the server's answer.
//
//	hold := pgproxy.HoldCommit()
//	proxy.OnCommit(func(string) *pgproxy.Action { return hold })
//	err := tx.Commit(ctx)               // fails: the connection was cut
//	<-hold.Done()                       // ... and the server hasn't seen it
//	answer, err := hold.Deliver(ctx)    // now it has
//
// It also plays poolers: Instead answers in the server's place, and SwitchServers and
// SplitPipelines break what is sent together.
//
// # What is not promised
//
// Connections are never encrypted, on either side: a request for TLS or GSS is declined.
// Pause acts between messages: one that is being forwarded goes through. Latency is not
// modelled.
package pgproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Direction is one of the two ways of a connection.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy is between clients and one Postgres server. Its methods may be
// called concurrently.
type Proxy struct {
	listener net.Listener
	network  string // of the server
	address  string
	dsn      string
	gates    [2]gate
	switches atomic.Bool
	splits   atomic.Bool

	reserved chan struct{} // has a value while the rule is reserved
	ruleMu   sync.Mutex
	rule     func(sql string) *Action

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

// New starts a proxy to the server of a DSN. It doesn't contact the server. It fails if the DSN
// can't be read. The caller closes it.
func New(upstream string) (*Proxy, error) {
	cfg, err := pgconn.ParseConfig(upstream)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	p := &Proxy{conns: map[*conn]struct{}{}, reserved: make(chan struct{}, 1)}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	if p.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	if p.dsn, err = redirect(upstream, p.listener.Addr().(*net.TCPAddr)); err != nil {
		return nil, errors.Join(err, p.listener.Close())
	}
	p.wg.Go(p.accept)
	return p, nil
}

// redirect is the DSN with another address and without TLS.
func redirect(dsn string, to *net.TCPAddr) (string, error) {
	if !strings.Contains(dsn, "://") {
		return fmt.Sprintf("%s host=%s port=%d sslmode=disable", dsn, to.IP, to.Port), nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("pgproxy: %w", err)
	}
	u.Host = to.String()
	query := u.Query()
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Addr is where the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// DSN is the server's DSN with the proxy's address.
func (p *Proxy) DSN() string { return p.dsn }

// Pause keeps messages of a direction back, on every connection, until Resume:
// connections stay open and silent. A second call does nothing.
func (p *Proxy) Pause(d Direction) { p.gates[d].pause() }

// Resume lets messages of a direction through again, starting with those kept
// back. A second call does nothing.
func (p *Proxy) Resume(d Direction) { p.gates[d].resume() }

// CutAll closes every connection now, to clients and to the server, those that
// an Action holds included. New ones are accepted.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// Close stops listening, cuts all connections and returns when nothing of the
// proxy runs any more. A second call does nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	err := p.listener.Close()
	p.CutAll()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve connects a client to the server until either ends.
func (p *Proxy) serve(client net.Conn) {
	c := newConn(p, client)
	if !p.add(c) {
		c.close()
		return
	}
	defer p.remove(c)
	defer c.close()
	startup, err := c.negotiate()
	if err != nil {
		return
	}
	server, err := c.dial()
	if err != nil {
		return
	}
	if startup.isCancel() {
		c.cancel(server, startup)
		return
	}
	c.pump(server, startup)
}

// add registers a connection, unless the proxy is closed.
func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// gate lets messages of one direction through, or keeps them waiting.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open; nil means open too
}

// wait returns when the gate is open; it reports false if closed came first.
func (g *gate) wait(closed <-chan struct{}) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return true
	}
	select {
	case <-open:
		return true
	case <-closed:
		return false
	}
}

func (g *gate) pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// commitWord is COMMIT as a word, wherever it stands: also after other
// statements of one message, and, harmlessly for tests, in a literal.
var commitWord = regexp.MustCompile(`(?i)\bcommit\b`)

// OnCommit sets the rule for statements that contain the word COMMIT, in any
// case: the SQL of a Query message, or of the statement that an Execute runs.
// It replaces the rule before; nil removes it. Calls of the rule don't overlap;
// it must not call the Proxy.
func (p *Proxy) OnCommit(rule func(sql string) *Action) {
	if rule == nil {
		p.OnQuery(nil)
		return
	}
	p.OnQuery(func(sql string) *Action {
		if !commitWord.MatchString(sql) {
			return nil
		}
		return rule(sql)
	})
}

// OnQuery sets the rule for all statements; otherwise it is as OnCommit, which
// it replaces.
func (p *Proxy) OnQuery(rule func(sql string) *Action) {
	p.ruleMu.Lock()
	defer p.ruleMu.Unlock()
	p.rule = rule
}

// Reserve reserves the rule among independent callers, and waits while another has it. The
// caller must call free. It fails when ctx ends first.
func (p *Proxy) Reserve(ctx context.Context) (free func(), err error) {
	free = func() { <-p.reserved }
	select {
	case p.reserved <- struct{}{}:
		return free, nil
	default:
	}
	select {
	case p.reserved <- struct{}{}:
		return free, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// decide asks the rule and returns the Action that is to act, or nil.
func (p *Proxy) decide(sql string) *Action {
	p.ruleMu.Lock()
	defer p.ruleMu.Unlock()
	if p.rule == nil {
		return nil
	}
	if a := p.rule(sql); a.claim() {
		return a
	}
	return nil
}

// statements knows the SQL of a session's prepared statements and portals.
type statements struct {
	prepared map[string]string
	portals  map[string]string
}

func newStatements() *statements {
	return &statements{map[string]string{}, map[string]string{}}
}

// runs notes what a client's message prepares and returns the SQL that it has
// the server run, if it does.
func (s *statements) runs(m message) (sql string, ok bool, err error) {
	switch m.kind() {
	case typeQuery:
		var q pgproto3.Query
		err = q.Decode(m.body())
		return q.String, true, err
	case typeParse:
		var p pgproto3.Parse
		err = p.Decode(m.body())
		s.prepared[p.Name] = p.Query
	case typeBind:
		var b pgproto3.Bind
		err = b.Decode(m.body())
		s.portals[b.DestinationPortal] = s.prepared[b.PreparedStatement]
	case typeExecute:
		var e pgproto3.Execute
		err = e.Decode(m.body())
		return s.portals[e.Portal], true, err
	}
	return "", false, err
}
