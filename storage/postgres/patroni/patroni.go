// Package patroni lets a pool use only the Postgres that Patroni has elected. A primary that has lost its election may
// go on accepting writes, which are lost once it follows its successor: one whose Patroni has stopped, for example.
//
// Patroni has to keep its leader key in an etcd, over etcd's API v3:
//
//	primary, err := patroni.Watch(client, patroni.Config{Scope: "shop"})
//	...
//	defer primary.Close()
//	primary.Configure(poolConfig)
//	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
//
// The pool asks each new connection once which server it leads to, and looks at each connection before it hands it
// out, so before each guarded transaction. While it isn't known who is elected, no connection is handed out. Of several
// hosts in the DSN the elected one is taken.
//
// # What is not promised
//
// What has its connection goes on: a transaction that has begun may commit on the old primary, and is lost then. One
// may also begin there until the change is known here, at once or after Config.MaxAge at most, for which time that the
// process or its machine stands still doesn't count. Patroni's watchdog and synchronous standbys close that window. An
// old primary that takes the leader key back counts as elected (Patroni 3.0.2, patroni/patroni#2689).
package patroni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
)

// Config says which cluster of Patroni's to follow. The zero value of a field means its default; Scope has none.
type Config struct {
	// Namespace and Scope are those of Patroni's configuration. Default Namespace "/service". The user of the
	// client has to have the right to read what is below them.
	Namespace, Scope string
	// MaxAge is how long an answer of etcd's counts. It is asked three times meanwhile. Between 1 s and 1 h.
	// Default 5 s.
	MaxAge time.Duration
	// Member returns the name of the member to whose Postgres the connection leads; it must not change while that is
	// open. Default: the server's own address and port have to be those of the leader's conn_url, so there must be no
	// Unix socket, pooler or translation of the server's address in between.
	Member func(context.Context, *pgconn.PgConn) (name string, err error)
	// Logger logs changes of the leader, and when and why it isn't known. Default: no log.
	Logger *slog.Logger
}

// Leader is a member that Patroni has elected.
type Leader struct {
	Name string
	// Generation is the revision at which the leader key was written: a later leader's is higher. The revision at
	// which it was created isn't, since Patroni may overwrite the key.
	Generation int64
}

// RefusedError means that a connection wasn't used. It is storage.ErrStoreUnavailable: a later call may succeed.
type RefusedError struct {
	Server string // where the connection leads
	Leader Leader // the elected primary, a different one; zero if it isn't known
	Reason string // why it isn't known
	at     []string
}

func (e *RefusedError) Error() string {
	if e.Reason != "" {
		return "patroni: it isn't known which server is the elected primary: " + e.Reason
	}
	return fmt.Sprintf("patroni: the server %s is not the elected primary, which is %s (%s)", e.Server, e.Leader.Name, strings.Join(e.at, ", "))
}

// Is reports whether target is storage.ErrStoreUnavailable, or pgconn.ErrReadOnlyConnection, by which the store knows
// a failover from a DSN that is wrong.
func (e *RefusedError) Is(target error) bool {
	return target == storage.ErrStoreUnavailable || target == pgconn.ErrReadOnlyConnection
}

// Primary knows which server is the elected primary. Its methods may be called concurrently.
type Primary struct {
	cfg    Config
	base   string
	client *clientv3.Client
	stop   context.CancelFunc
	ended  chan struct{}
	asked  chan struct{} // closed once etcd was asked, whatever came of it
	newest int64         // generation; for follow alone

	mu    sync.Mutex
	known knowledge // changed by follow alone
}

type knowledge struct {
	Leader
	servers []string  // the leader's, as identify returns them
	at      time.Time // before etcd was asked; zero if it didn't tell
	why     string    // nothing newer is known
}

// Watch follows the elections of a cluster until Close. The client stays the caller's: close it after that. Watch
// doesn't wait for etcd; the first connection does.
func Watch(client *clientv3.Client, cfg Config) (*Primary, error) {
	cfg.MaxAge = cmp.Or(cfg.MaxAge, 5*time.Second)
	cfg.Logger = callback.Logger(cfg.Logger)
	switch {
	case client == nil:
		return nil, fmt.Errorf("%w: patroni.Watch needs a client", fence.ErrInvalid)
	case cfg.Scope == "":
		return nil, fmt.Errorf("%w: patroni.Config.Scope is empty, want the scope of Patroni's configuration", fence.ErrInvalid)
	case cfg.MaxAge < time.Second || cfg.MaxAge > time.Hour:
		return nil, fmt.Errorf("%w: patroni.Config.MaxAge is %v, want between 1s and 1h", fence.ErrInvalid, cfg.MaxAge)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Primary{
		cfg: cfg, base: path.Join("/", cmp.Or(cfg.Namespace, "service"), cfg.Scope), client: client,
		stop: cancel, ended: make(chan struct{}), asked: make(chan struct{}),
		known: knowledge{why: "etcd was not asked yet"},
	}
	go p.follow(ctx)
	return p, nil
}

// Close ends the watch, after which nothing is known. It may be called again.
func (p *Primary) Close() {
	p.stop()
	<-p.ended
}

// Leader returns the elected primary, or a *RefusedError if it isn't known.
func (p *Primary) Leader() (Leader, error) {
	known, err := p.know()
	return known.Leader, err
}

// Configure adds the check to the hooks ConnConfig.ValidateConnect and PrepareConn of a pool. What they were before
// runs first.
func (p *Primary) Configure(cfg *pgxpool.Config) {
	//lint:ignore SA1019 a PrepareConn replaces it
	validate, prepare, acquire := cfg.ConnConfig.ValidateConnect, cfg.PrepareConn, cfg.BeforeAcquire
	cfg.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if validate != nil {
			if err := validate(ctx, conn); err != nil {
				return err
			}
		}
		server, err := p.identify(ctx, conn)
		if err != nil {
			return err
		}
		conn.CustomData()[p.base] = server
		if known, err := p.know(); err == nil && !slices.Contains(known.servers, server) {
			return &RefusedError{Server: server, Leader: known.Leader, at: known.servers} // pgconn tries the next host
		}
		return nil
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (ok bool, err error) {
		switch ok = true; {
		case prepare != nil:
			ok, err = prepare(ctx, conn)
		case acquire != nil:
			ok = acquire(ctx, conn)
		}
		if !ok || err != nil {
			return ok, err
		}
		select {
		case <-p.asked:
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
		known, err := p.know()
		server, _ := conn.PgConn().CustomData()[p.base].(string)
		return err != nil || slices.Contains(known.servers, server), err
	}
}

func (p *Primary) know() (knowledge, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.known.at) > p.cfg.MaxAge {
		return knowledge{}, &RefusedError{Reason: cmp.Or(p.known.why, "what etcd said is too old")}
	}
	return p.known, nil
}

// identify returns an address and port, or a member's name.
func (p *Primary) identify(ctx context.Context, conn *pgconn.PgConn) (string, error) {
	if p.cfg.Member != nil {
		return p.cfg.Member(ctx, conn)
	}
	results, err := conn.Exec(ctx, "select host(inet_server_addr()), inet_server_port(), pg_backend_pid()").ReadAll()
	if err != nil {
		return "", fmt.Errorf("patroni: can't ask the server for its address: %w", err)
	}
	row := results[0].Rows[0]
	switch address, err := netip.ParseAddr(string(row[0])); {
	case string(row[2]) != fmt.Sprint(conn.PID()):
		return "", errors.New("patroni: a pooler answers, which may send each transaction to another server: connect to the servers themselves, or through HAProxy")
	case err != nil:
		return "", errors.New("patroni: the connection is over a Unix socket, on which the server has no address: connect over TCP, or set patroni.Config.Member")
	default:
		return net.JoinHostPort(address.Unmap().String(), string(row[1])), nil
	}
}
