package pgproxy

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
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

// New starts a proxy to the server of a DSN or of a host:port. It doesn't
// contact the server. It fails if the DSN can't be read. The caller closes it.
func New(upstream string) (*Proxy, error) {
	p := &Proxy{conns: map[*conn]struct{}{}, reserved: make(chan struct{}, 1)}
	isDSN := strings.ContainsAny(upstream, "=/")
	if isDSN {
		cfg, err := pgconn.ParseConfig(upstream)
		if err != nil {
			return nil, fmt.Errorf("pgproxy: %w", err)
		}
		p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	} else {
		if _, _, err := net.SplitHostPort(upstream); err != nil {
			return nil, fmt.Errorf("pgproxy: neither a DSN nor host:port: %w", err)
		}
		p.network, p.address = "tcp", upstream
		upstream = "postgres:///postgres"
	}
	var err error
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

// DSN is the server's DSN with the proxy's address. Made from a host:port it
// names the database postgres and no user.
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
