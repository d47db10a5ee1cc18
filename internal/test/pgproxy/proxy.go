// Package pgproxy is a proxy in the test's own process that understands enough of the Postgres
// protocol to lose, hold, cut or answer exactly one COMMIT.
//
// Messages are forwarded whole and byte for byte. A rule (OnCommit, OnQuery) sees the SQL of each
// statement that is about to be run and may return an Action for it; nil passes it on. Statements
// of the extended protocol are seen at their Execute, not at Parse.
//
// A test waits for what an Action describes, and never sleeps:
//
//	hold := pgproxy.HoldCommit()
//	proxy.OnCommit(func(string) *pgproxy.Action { return hold })
//	err := tx.Commit(ctx)               // fails: the connection was cut
//	err = hold.Wait(ctx)                // ... and the server hasn't seen it
//	answer, err := hold.Deliver(ctx)    // now it has
//
// It also plays poolers: Instead answers in the server's place, and SplitPipelines breaks what is
// sent together. Connections are never encrypted: a request for TLS or GSS is declined.
package pgproxy

import (
	"bytes"
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

	"github.com/fencekit/fencekit/internal/test/netfault"
)

// Proxy is between clients and one Postgres server. The methods of its Link break the network
// between clients and proxy: a rule doesn't see what a Cut holds back, and Reset ends the sessions that no Action
// holds. Its methods may be called concurrently.
type Proxy struct {
	*netfault.Link
	listener net.Listener
	network  string // of the server
	address  string
	dsn      string
	splits   atomic.Bool

	reserved chan struct{} // has a value while the rule is reserved
	ruleMu   sync.Mutex
	rule     func(sql string) *Action

	open context.Context // ends at Close
	end  context.CancelFunc
	wg   sync.WaitGroup
}

// New starts a proxy to the server of a DSN, which is a URL. It doesn't contact the server. It fails if the DSN
// can't be read. The caller closes it.
func New(upstream string) (*Proxy, error) {
	cfg, err := pgconn.ParseConfig(upstream)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	p := &Proxy{reserved: make(chan struct{}, 1)}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.open, p.end = context.WithCancel(context.Background())
	if p.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	if p.Link, err = netfault.New(p.listener.Addr().String()); err != nil {
		return nil, errors.Join(err, p.listener.Close())
	}
	if p.dsn, err = redirect(upstream, p.Addr()); err != nil {
		return nil, errors.Join(err, p.Link.Close(), p.listener.Close())
	}
	p.wg.Go(p.accept)
	return p, nil
}

// redirect is the DSN with another address and without TLS.
func redirect(dsn, address string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("pgproxy: %w", err)
	}
	u.Host = address
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// DSN is the server's DSN with the proxy's address.
func (p *Proxy) DSN() string { return p.dsn }

// Close stops listening, cuts all connections and returns when nothing of the proxy runs any more.
// A second call does nothing.
func (p *Proxy) Close() error {
	err := errors.Join(p.Link.Close(), p.listener.Close())
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	p.end()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(newConn(p, client).serve)
	}
}

// SplitPipelines sends a Sync after each Execute, and drops the ReadyForQuery that answers it, as a
// pooler does that takes pipelined statements for separate ones. It is not for connections on which
// an Action acts.
func (p *Proxy) SplitPipelines() { p.splits.Store(true) }

// commitWord is COMMIT as a word, wherever it stands: also after other statements of one message,
// and, harmlessly for tests, in a literal.
var commitWord = regexp.MustCompile(`(?i)\bcommit\b`)

// OnCommit sets the rule for statements that contain the word COMMIT, in any case: the SQL of a
// Query message, or of the statement that an Execute runs. It replaces the rule before; nil removes
// it. Calls of the rule don't overlap; it must not set a rule.
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

// OnQuery sets the rule for all statements; otherwise it is as OnCommit, which it replaces.
func (p *Proxy) OnQuery(rule func(sql string) *Action) {
	p.ruleMu.Lock()
	defer p.ruleMu.Unlock()
	p.rule = rule
}

// Reserve reserves the rule among independent callers, and waits while another has it. The
// caller must call free. It fails when ctx ends first.
func (p *Proxy) Reserve(ctx context.Context) (free func(), err error) {
	select {
	case p.reserved <- struct{}{}:
		return func() { <-p.reserved }, nil
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
	if a := p.rule(sql); a != nil && !a.used.Swap(true) {
		return a
	}
	return nil
}

// statements knows the SQL of a session's prepared statements and portals.
type statements struct{ prepared, portals map[string]string }

// runs notes what a client's message prepares and returns the SQL that it has the server run, if
// it does.
func (s statements) runs(m message) (sql string, ok bool, err error) {
	if !strings.ContainsRune("QPBE", rune(m.kind())) {
		return "", false, nil
	}
	said, err := pgproto3.NewBackend(bytes.NewReader(m), nil).Receive()
	switch said := said.(type) {
	case *pgproto3.Query:
		return said.String, true, nil
	case *pgproto3.Parse:
		s.prepared[said.Name] = said.Query
	case *pgproto3.Bind:
		s.portals[said.DestinationPortal] = s.prepared[said.PreparedStatement]
	case *pgproto3.Execute:
		return s.portals[said.Portal], true, nil
	}
	return "", false, err
}
