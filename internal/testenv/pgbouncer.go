package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// PgBouncerConfig says how to run PgBouncer. nil means all defaults.
type PgBouncerConfig struct {
	// PoolSize is how many connections it has to each database at most. Default
	// 4: fewer than clients, so that these share them.
	PoolSize int
	// Settings are parameters in its [pgbouncer] section, stronger than those
	// of this package (transaction mode, no named prepared statements). Default:
	// none.
	Settings map[string]string
	// Log gets its output beside the log file. Default: none.
	Log io.Writer
}

// PgBouncer is a pooler in front of a Postgres. Its methods may be called
// concurrently.
type PgBouncer struct {
	controller process.Controller
	address    string
	source     string
}

// StartPgBouncer starts a pooler in front of pg, in transaction mode, and returns
// once it answers, which needs no Postgres that does; it must be stopped by Stop.
// Any client may connect, and is pg's own user there. It fails with
// *NoPgBouncerError if none is installed. ctx bounds the start alone.
func StartPgBouncer(ctx context.Context, pg *Postgres, cfg *PgBouncerConfig) (*PgBouncer, error) {
	var c PgBouncerConfig
	if cfg != nil {
		c = *cfg
	}
	if c.PoolSize == 0 {
		c.PoolSize = 4
	}
	path, version, err := FindPgBouncer(ctx)
	if err != nil {
		return nil, err
	}
	upstream, err := pgx.ParseConfig(pg.dsn)
	if err != nil {
		return nil, fmt.Errorf("testenv: PgBouncer in front of %s: %w", pg.source, err)
	}
	account, err := serverAccount() // PgBouncer refuses root, as Postgres does
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("pgbouncer", c.Log, 1)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{controller: s, address: s.Ports[0].Address(), source: fmt.Sprintf("local %s (%s)", path, version)}
	s.Ready = func(ctx context.Context) error { return process.Poll(ctx, b.ping) }
	dir := s.Dir.Path("pgbouncer")
	s.Command = func() (*exec.Cmd, error) { return account.command(dir, path, "pgbouncer.ini"), nil }
	if err := writePgBouncerIni(account, dir, pgbouncerIni(upstream, s.Ports[0], version, c)); err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	announce("PgBouncer", b.source)
	return b, nil
}

// pgbouncerIni is the text of a configuration.
func pgbouncerIni(upstream *pgx.ConnConfig, p *process.Port, version string, cfg PgBouncerConfig) string {
	settings := map[string]string{
		"listen_addr":        "127.0.0.1",
		"listen_port":        strconv.Itoa(p.Number),
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

// writePgBouncerIni puts a configuration, which may hold a password, where only
// the account gets at it.
func writePgBouncerIni(account *account, dir, text string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	file := dir + "/pgbouncer.ini"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return errors.Join(account.own(file), account.own(dir))
}

// ping returns once the pooler itself has answered.
func (b *PgBouncer) ping(ctx context.Context) error {
	return (&Postgres{dsn: b.AdminDSN()}).exec(ctx, "show version")
}

// DSN is the pooler's address for a database of the Postgres behind it, given
// that one's DSN. Without pgx's default_query_exec_mode=exec a client's prepared
// statements fail.
func (b *PgBouncer) DSN(postgres string) (string, error) {
	cfg, err := pgx.ParseConfig(postgres)
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	return b.url(cfg.User, cfg.Database), nil
}

// AdminDSN is the pooler's own console. It knows the simple protocol only.
func (b *PgBouncer) AdminDSN() string { return b.url("postgres", "pgbouncer") }

func (b *PgBouncer) url(user, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: b.address, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Source says which PgBouncer this is, as "local /usr/sbin/pgbouncer (1.18.0)".
func (b *PgBouncer) Source() string { return b.source }

// Stop ends the pooler, which cuts its clients and its connections to Postgres,
// and removes its directory. A second call does nothing.
func (b *PgBouncer) Stop(ctx context.Context) error { return b.controller.Stop(ctx) }

// Kill ends the pooler at once. One that isn't running stays so.
func (b *PgBouncer) Kill() error { return b.controller.Kill() }

// Restart starts the pooler again on the same port, stopping it first if it
// runs, and returns once it answers. It fails with ErrStopped after Stop.
func (b *PgBouncer) Restart(ctx context.Context) error { return b.controller.Restart(ctx) }

// Pause stops the pooler by SIGSTOP: connections stay open and silent.
func (b *PgBouncer) Pause() error { return b.controller.Pause() }

// Resume lets a paused pooler go on.
func (b *PgBouncer) Resume() error { return b.controller.Resume() }
