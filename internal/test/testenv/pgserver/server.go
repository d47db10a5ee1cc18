// Package pgserver runs Postgres for tests, and makes databases on it. See package testenv.
//
// The server is found on the machine or run in Docker, in the order that Start documents. Only one from this
// machine's own binaries (Config.Local) can have its data copied, or a standby.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// Server is a Postgres server for tests. Its methods may be called concurrently.
//
//   - Stop and Restart end it orderly ("fast": transactions are rolled back).
//   - Kill ends it at once and without a checkpoint ("immediate"): the next start
//     recovers from the log, as after a crash.
//   - Pause stops the postmaster alone: new connections get no answer, *while existing
//     ones go on*. To stop one of those, stop its backend (pg_backend_pid) or put a
//     pgproxy in between. In Docker the whole container is paused, backends included.
type Server struct {
	*process.Server
	local // zero unless it is one
	dsn   string
}

func newServer() (*Server, error) {
	s, err := process.NewServer("postgres", 1)
	if err != nil {
		return nil, err
	}
	return &Server{Server: s, dsn: "postgres://postgres@" + s.Address(0) + "/postgres?sslmode=disable"}, nil
}

// DSN is the URL of the database "postgres", as a superuser, or what FENCEKIT_POSTGRES_DSN says. It is the
// same after Restart.
func (p *Server) DSN() string { return p.dsn }

// CreateDatabase makes an empty database and returns its DSN. It fails if the
// name is taken.
func (p *Server) CreateDatabase(ctx context.Context, name string) (dsn string, err error) {
	return p.createDatabase(ctx, name, "")
}

// CopyDatabase ends the connections to the database from and makes a copy of it.
func (p *Server) CopyDatabase(ctx context.Context, name, from string) (dsn string, err error) {
	if err := p.endConnections(ctx, from); err != nil {
		return "", fmt.Errorf("testenv: end the connections to %s: %w", from, err)
	}
	return p.createDatabase(ctx, name, from)
}

func (p *Server) endConnections(ctx context.Context, database string) error {
	return p.exec(ctx, "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = '"+database+"'")
}

func (p *Server) createDatabase(ctx context.Context, name, template string) (dsn string, err error) {
	err = p.withConn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, createSQL(name, template))
		var answer *pgconn.PgError
		if errors.As(err, &answer) && answer.Code == "42501" {
			role := pgx.Identifier{conn.Config().User}.Sanitize()
			return fmt.Errorf("%w; the role needs the right to create databases: alter role %s createdb", err, role)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("testenv: create database %s: %w", name, err)
	}
	return withDatabase(p.dsn, name)
}

// createSQL copies files: by default every page of the copy is logged, which costs several times as much.
func createSQL(name, template string) string {
	sql := "create database " + pgx.Identifier{name}.Sanitize() + " strategy file_copy"
	if template != "" {
		sql += " template " + pgx.Identifier{template}.Sanitize()
	}
	return sql
}

// DropDatabase drops a database, ending its connections.
func (p *Server) DropDatabase(ctx context.Context, name string) error {
	if err := p.exec(ctx, "drop database "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
		return fmt.Errorf("testenv: drop database %s: %w", name, err)
	}
	return nil
}

func (p *Server) withConn(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

func (p *Server) exec(ctx context.Context, sql string) error {
	return p.withConn(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// set changes a parameter of the running server.
func (p *Server) set(ctx context.Context, name, value string) error {
	if err := p.exec(ctx, "alter system set "+name+" = '"+value+"'"); err != nil {
		return err
	}
	return p.exec(ctx, "select pg_reload_conf()")
}

func (p *Server) ping(ctx context.Context) error { return p.exec(ctx, "select 1") }

// withDatabase is the DSN with another database.
func withDatabase(dsn, name string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

var shared = process.Shared(func(ctx context.Context) (*Server, error) {
	return Start(ctx, &Config{Settings: unsynced})
})

// unsynced are the settings of a server that no test crashes: otherwise making and dropping databases mostly
// waits for the disk. The locks of a vacuum would be in the way of tests that look at locks, and the planner
// takes the queries of a few views for worth compiling.
var unsynced = map[string]string{"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "jit": "off"}

// Shared returns the Postgres that the tests of this binary share. Start is for a test that kills, pauses or
// restarts one.
func Shared(t testing.TB) *Server {
	t.Helper()
	p, err := shared()
	require.NoError(t, err)
	return p
}

// Database makes a fresh database on the shared Postgres and returns its DSN. It is dropped when the test
// passes; when the test fails it is kept, while the server lives, and named in the log.
func Database(t testing.TB) (dsn string) {
	t.Helper()
	return database(t, "")
}

func database(t testing.TB, template string) (dsn string) {
	t.Helper()
	p := Shared(t)
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	name := databaseName(t.Name())
	dsn, err := p.createDatabase(ctx, name, template)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("testenv: database kept: %s", dsn)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
		defer cancel()
		require.NoError(t, p.DropDatabase(ctx, name))
	})
	return dsn
}

// databaseName is a test's name as an identifier, with a random end: a server that went on after earlier
// tests may keep theirs.
func databaseName(test string) string {
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("%.46s_%016x", word, rand.Uint64())
}

// Template is a database on the shared Postgres that is prepared once, and copied for
// each test: a copy costs a fraction of a migration.
type Template struct {
	// Prepare fills an empty database.
	Prepare func(ctx context.Context, pool *pgxpool.Pool) error

	once sync.Once
	name string
	err  error
}

// Database makes a copy and returns its DSN; see the function Database.
func (tpl *Template) Database(t testing.TB) (dsn string) {
	t.Helper()
	tpl.once.Do(func() { tpl.err = tpl.make(Shared(t)) })
	require.NoError(t, tpl.err)
	return database(t, tpl.name)
}

func (tpl *Template) make(p *Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	tpl.name = databaseName("template")
	dsn, err := p.CreateDatabase(ctx, tpl.name)
	if err != nil {
		return err
	}
	// The shared server may outlive this process.
	process.AfterTests(func(ctx context.Context) error { return p.DropDatabase(ctx, tpl.name) })
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	err = tpl.Prepare(ctx, pool)
	pool.Close()
	if err != nil {
		return err
	}
	// What is still on its way out would be in the way of the copies.
	return p.endConnections(ctx, tpl.name)
}

// Forgetful returns an option for a pool of the database, and forget, which fills that pool with idle connections that
// the network then forgets: it carries no more of what they send, and new ones work. made counts those.
func Forgetful(t testing.TB, dsn string) (option func(*pgxpool.Config), forget func(*pgxpool.Pool), made *atomic.Int64) {
	t.Helper()
	server, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	link, err := netfault.New(net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port))))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	made = new(atomic.Int64)
	option = func(cfg *pgxpool.Config) {
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true } // as after a second
		cfg.AfterConnect = func(context.Context, *pgx.Conn) error {
			made.Add(1)
			return nil
		}
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, link.Addr())
		}
	}
	return option, func(pool *pgxpool.Pool) {
		idle := pool.AcquireAllIdle(t.Context())
		for len(idle) < int(pool.Config().MaxConns) {
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			idle = append(idle, conn)
		}
		for _, conn := range idle {
			conn.Release()
		}
		made.Store(0)
		t.Cleanup(link.HalfOpen())
	}, made
}
