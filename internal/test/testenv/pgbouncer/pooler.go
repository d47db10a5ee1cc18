// Package pgbouncer runs PgBouncer in front of a Postgres for tests. See package testenv.
package pgbouncer

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// Pooler is a PgBouncer in front of a Postgres. Stop cuts its clients and its
// connections to Postgres. Its methods may be called concurrently.
type Pooler struct{ *process.Server }

// installed is PgBouncer where packages put it: Debian's place is not on an ordinary
// user's PATH.
var installed = process.Installed{
	Server: "PgBouncer",
	Places: []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"},
	Advice: "sudo apt-get install pgbouncer | sudo dnf install pgbouncer | brew install pgbouncer",
}

func init() { installed.Needed() }

// Start starts a pooler in front of the server, or the proxy, that a DSN leads to, and returns once it answers, which
// needs no Postgres that does; it must be stopped by Stop. Any client may connect, and is the DSN's user there.
//
// The settings are parameters in its [pgbouncer] section, stronger than those of this package: transaction mode, no
// named prepared statements, and a pool of 4 connections, fewer than clients, so that these share them. It fails with
// *process.NotFoundError if none is installed. ctx bounds the start alone.
func Start(ctx context.Context, dsn string, settings map[string]string) (*Pooler, error) {
	upstream, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("testenv: the DSN of the server behind PgBouncer: %w", err)
	}
	s, err := installed.Start(ctx, func(s *process.Server, version string) string {
		return configuration(upstream, s.Port(0), version, settings)
	}, ping)
	return &Pooler{s}, err
}

// configuration may hold a password.
func configuration(upstream *pgx.ConnConfig, port int, version string, others map[string]string) string {
	settings := map[string]string{
		"listen_addr":        "127.0.0.1",
		"listen_port":        fmt.Sprint(port),
		"unix_socket_dir":    "",
		"auth_type":          "any",
		"pool_mode":          "transaction",
		"default_pool_size":  "4",
		"max_client_conn":    "1000",
		"server_tls_sslmode": "prefer",
	}
	var major, minor int
	if _, _ = fmt.Sscanf(version, "%d.%d", &major, &minor); major > 1 || minor >= 21 {
		settings["max_prepared_statements"] = "0" // as it is for those that don't know it
	}
	maps.Copy(settings, others)
	var ini strings.Builder
	quoted := func(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
	fmt.Fprintf(&ini, "[databases]\n* = host=%s port=%d user=%s", quoted(upstream.Host), upstream.Port, quoted(upstream.User))
	if upstream.Password != "" {
		fmt.Fprintf(&ini, " password=%s", quoted(upstream.Password))
	}
	ini.WriteString("\n[pgbouncer]\n")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&ini, "%s = %s\n", name, settings[name])
	}
	return ini.String()
}

// ping returns once the pooler has let a client log in to its own console.
func ping(ctx context.Context, s *process.Server) error {
	conn, err := pgx.Connect(ctx, dsn(s, "postgres", "pgbouncer"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// DSN is the pooler's address for a database of the Postgres behind it, given
// that one's DSN. Without pgx's default_query_exec_mode=exec a client's prepared
// statements fail.
func (b *Pooler) DSN(postgres string) (string, error) {
	cfg, err := pgx.ParseConfig(postgres)
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	return dsn(b.Server, cfg.User, cfg.Database), nil
}

func dsn(s *process.Server, user, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: s.Address(0), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}
