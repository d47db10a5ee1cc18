// Package pgbouncer runs PgBouncer in front of a Postgres for tests. See package testenv.
package pgbouncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Config says how to run PgBouncer. nil means all defaults.
type Config struct {
	// PoolSize is how many connections it has to each database at most. Default
	// 4: fewer than clients, so that these share them.
	PoolSize int
	// Settings are parameters in its [pgbouncer] section, stronger than those
	// of this package (transaction mode, no named prepared statements). Default:
	// none.
	Settings map[string]string
}

// Pooler is a PgBouncer in front of a Postgres. It is stopped, which cuts its clients and its
// connections to Postgres, killed, paused and started again by the methods of
// process.Controller. Its methods may be called concurrently.
type Pooler struct {
	process.Controller
	address string
}

// Start starts a pooler in front of pg, in transaction mode, and returns
// once it answers, which needs no Postgres that does; it must be stopped by Stop.
// Any client may connect, and is pg's own user there. It fails with
// *process.NotFoundError if none is installed. ctx bounds the start alone.
func Start(ctx context.Context, pg *pgserver.Server, cfg *Config) (*Pooler, error) {
	return StartBefore(ctx, pg.DSN(), cfg)
}

// StartBefore is Start before the server, or the proxy, that a DSN leads to.
func StartBefore(ctx context.Context, dsn string, cfg *Config) (*Pooler, error) {
	c := *cmp.Or(cfg, &Config{})
	c.PoolSize = cmp.Or(c.PoolSize, 4)
	path, version, err := installed.Find(ctx)
	if err != nil {
		return nil, err
	}
	upstream, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("testenv: the DSN of the server behind PgBouncer: %w", err)
	}
	account, err := process.ServerAccount() // PgBouncer does not run as root, nor does Postgres
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("pgbouncer", nil, 1)
	if err != nil {
		return nil, err
	}
	b := &Pooler{Controller: s, address: s.Address(0)}
	dir, ini := s.Dir().Path("pgbouncer"), configuration(upstream, s.Port(0), version, c)
	err = s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return account.Command(dir, path, "pgbouncer.ini"), account.WriteFile(dir, "pgbouncer.ini", []byte(ini))
		},
		Ready: func(ctx context.Context) error { return process.Poll(ctx, b.ping) },
	})
	if err != nil {
		return nil, err
	}
	process.Announce("PgBouncer", fmt.Sprintf("local %s (%s)", path, version))
	return b, nil
}

// configuration may hold a password.
func configuration(upstream *pgx.ConnConfig, port int, version string, cfg Config) string {
	settings := map[string]string{
		"listen_addr":        "127.0.0.1",
		"listen_port":        strconv.Itoa(port),
		"unix_socket_dir":    "",
		"auth_type":          "any",
		"pool_mode":          "transaction",
		"default_pool_size":  strconv.Itoa(cfg.PoolSize),
		"max_client_conn":    "1000",
		"server_tls_sslmode": "prefer",
	}
	var major, minor int
	if _, _ = fmt.Sscanf(version, "%d.%d", &major, &minor); major > 1 || minor >= 21 {
		settings["max_prepared_statements"] = "0" // as it is for those that don't know it
	}
	maps.Copy(settings, cfg.Settings)
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

// ping returns once the pooler itself has answered.
func (b *Pooler) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.adminDSN())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "show version")
	return errors.Join(err, conn.Close(ctx))
}

// DSN is the pooler's address for a database of the Postgres behind it, given
// that one's DSN. Without pgx's default_query_exec_mode=exec a client's prepared
// statements fail.
func (b *Pooler) DSN(postgres string) (string, error) {
	cfg, err := pgx.ParseConfig(postgres)
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	return b.url(cfg.User, cfg.Database), nil
}

// adminDSN is the pooler's own console. It knows the simple protocol only.
func (b *Pooler) adminDSN() string { return b.url("postgres", "pgbouncer") }

func (b *Pooler) url(user, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: b.address, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// installed is PgBouncer where packages put it: Debian's place is not on an ordinary
// user's PATH.
var installed = process.Installed{
	Server: "PgBouncer",
	Places: []string{
		"pgbouncer",
		"/usr/sbin/pgbouncer",
		"/usr/local/sbin/pgbouncer",
		"/opt/homebrew/bin/pgbouncer",
	},
	Version: regexp.MustCompile(`(?i)^PgBouncer (?:version )?(\d\S*)`),
	Advice:  "sudo apt-get install pgbouncer | sudo dnf install pgbouncer | brew install pgbouncer",
}
