// Package pgserver runs Postgres for tests, and makes databases on it. See package testenv.
//
// The server is found on the machine or run in Docker, in the order that Start documents. Only one from this
// machine's own binaries (Config.Local) can have its data copied, a standby, or a full disk.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// testSettings are the parameters of every server that this package starts. fsync stays on, as in
// production, except on the shared server (unsynced), and a killed server leaves no
// shared memory in /dev/shm.
var testSettings = map[string]string{
	"max_connections":            "200",
	"wal_level":                  "logical",
	"dynamic_shared_memory_type": "mmap",
	"log_line_prefix":            "%m [%p] %q%d ",
	"timezone":                   "UTC",
}

// settingArgs are the arguments for testSettings and others, which are stronger.
func settingArgs(others ...map[string]string) []string {
	settings := maps.Clone(testSettings)
	for _, s := range others {
		maps.Copy(settings, s)
	}
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// Server is a Postgres server for tests. It is stopped, killed, paused and started again by
// the methods of process.Controller. Its methods may be called concurrently.
//
//   - Stop and Restart end it orderly ("fast": transactions are rolled back).
//   - Kill ends it at once and without a checkpoint ("immediate"): the next start
//     recovers from the log, as after a crash.
//   - Pause stops the postmaster alone: new connections get no answer, *while existing
//     ones go on*. To stop one of those, stop its backend (pg_backend_pid) or put a
//     pgproxy in between. In Docker the whole container is paused, backends included.
type Server struct {
	process.Controller
	local  *local // nil if it isn't one
	dsn    string
	source string
}

// DSN is the URL of the database "postgres", as a superuser, or what FENCEKIT_POSTGRES_DSN says. It is the
// same after Restart.
func (p *Server) DSN() string { return p.dsn }

// Source says which Postgres this is, as "local /usr/lib/postgresql/15/bin
// (15.18)", "docker postgres:17" or "FENCEKIT_POSTGRES_DSN".
func (p *Server) Source() string { return p.source }

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
	if err := p.create(ctx, name, template); err != nil {
		return "", fmt.Errorf("testenv: create database %s: %w%s", name, err, p.createAdvice(err))
	}
	return withDatabase(p.dsn, name)
}

func (p *Server) create(ctx context.Context, name, template string) error {
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, createSQL(conn, name, template))
	return errors.Join(err, conn.Close(ctx))
}

// createSQL copies files where the server leaves the choice: by default Postgres 15
// and later logs every page of the copy, which costs several times as much.
func createSQL(conn *pgx.Conn, name, template string) string {
	sql := "create database " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		sql += " template " + pgx.Identifier{template}.Sanitize()
	}
	var major int
	if _, err := fmt.Sscan(conn.PgConn().ParameterStatus("server_version"), &major); err == nil && major >= 15 {
		sql += " strategy file_copy"
	}
	return sql
}

func (p *Server) createAdvice(err error) string {
	var answer *pgconn.PgError
	cfg, parseErr := pgx.ParseConfig(p.dsn)
	if parseErr != nil || !errors.As(err, &answer) || answer.Code != "42501" {
		return ""
	}
	return fmt.Sprintf("; the role needs the right to create databases: alter role %s createdb", pgx.Identifier{cfg.User}.Sanitize())
}

// DropDatabase drops a database, ending its connections.
func (p *Server) DropDatabase(ctx context.Context, name string) error {
	if err := p.exec(ctx, "drop database "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
		return fmt.Errorf("testenv: drop database %s: %w", name, err)
	}
	return nil
}

func (p *Server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func (p *Server) ping(ctx context.Context) error { return p.exec(ctx, "select 1") }

// withDatabase is the DSN with another database. Of two dbname settings in a
// keyword DSN the later one counts.
func withDatabase(dsn, name string) (string, error) {
	if !strings.Contains(dsn, "://") {
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
		return dsn + " dbname='" + quoted + "'", nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}
