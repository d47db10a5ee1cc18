package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func TestUsage_Is64WithAHint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  string // separated by blanks
		says  string
		hints string
	}{
		{"", "which command? fencectl has audit, chaos, completion, doctor, epoch, exec, history, locks, migrate, protect, protected, tokens, unprotect, version", "fencectl"},
		{"migrate", "which command? fencectl migrate has get, status, up", "fencectl migrate"},
		{"migrat up", `no command "migrat"; did you mean migrate?`, "fencectl"},
		{"migrate staus", `no command "staus"; did you mean status?`, "fencectl migrate"},
		{"migrate staus --nonsense", `no command "staus"`, "fencectl migrate"},
		{"migrate drop", `no command "drop"` + "\n", "fencectl migrate"},
		{"completion", "takes one argument, SHELL", "fencectl completion"},
		{"completion tcsh", `SHELL is "tcsh", want bash`, "fencectl completion"},
		{"help migrate drop", `no command "drop"`, "fencectl help"},
		{"help nonsense", `no command "nonsense"`, "fencectl help"},
		{"version extra", "no arguments", "fencectl version"},
		{"migrate up extra", "no arguments", "fencectl migrate up"},
		{"migrate status extra", "no arguments", "fencectl migrate status"},
		{"migrate get 1", "no arguments", "fencectl migrate get"},
		{"migrate up --dry", "unknown flag --dry", "fencectl migrate up"},
		{"migrate up -x", "unknown flag -x", "fencectl migrate up"},
		{"migrate up --schema", "flag needs an argument: --schema", "fencectl migrate up"},
		{"migrate up --schema=", "--schema is empty", "fencectl migrate up"},
		{"migrate up --schema Shop", `schema name "Shop": want lower-case letters`, "fencectl migrate up"},
		{"migrate status -o xml", "want table, json, jsonl or csv", "fencectl migrate status"},
		{"migrate status --timeout soon", "--timeout", "fencectl migrate status"},
		{"migrate status --timeout 0s", "want more than 0", "fencectl migrate status"},
		{"migrate status --timeout -1s", "want more than 0", "fencectl migrate status"},
		{"migrate get --version 999", "there is no migration 999: versions are 1 to ", "fencectl migrate get"},
		{"migrate get --version 0", "there is no migration 0", "fencectl migrate get"},
		{"migrate get --version 1 --all", "exclude each other", "fencectl migrate get"},
	} {
		clitest.RequireUsageError(t, newRoot(), c.args, c.says, c.hints)
	}
}

func TestHelp_OfEachCommand(t *testing.T) {
	t.Parallel()
	for command, says := range map[string]string{
		"":               "3   environment not ready",
		"migrate":        "Commands:",
		"migrate up":     "fencectl migrate up [flags]",
		"migrate status": "exit code is 0 if all are applied and 3",
		"migrate get":    "psql -1 -v ON_ERROR_STOP=1",
		"tokens history": "fencectl tokens history RESOURCE [flags]",
		"audit report":   "exit code is 0 if nothing is wrong, 1 if",
		"audit why":      "fencectl audit why RESOURCE [flags]",
		"version":        "fencectl version [flags]",
	} {
		clitest.RequireHelp(t, newRoot, command, says)
	}
}

// A password must not show, wherever in a malformed setting it ends up.
func TestErrors_NeverPrintThePassword(t *testing.T) {
	t.Parallel()
	const closed = closedPort
	for _, c := range []struct {
		code int
		args []string
	}{
		{cli.ExitNotReady, []string{"--database-url", "postgres://me:s3cret@" + closed + "/shop"}},
		{cli.ExitNotReady, []string{"--database-url", "postgres://" + closed + "/shop?user=me&password=s3cret"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:s3cret@host:port/shop"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:/s3cret@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:12/s3cret@" + closed + "/shop"}},
		{cli.ExitNotReady, []string{"--database-url", "postgres://me:?s3cret@" + closed + "/shop"}},
		{cli.ExitNotReady, []string{"--database-url", "postgres://me:12?s3cret@" + closed + "/shop"}},
		{cli.ExitNotReady, []string{"--database-url", "postgres://me:12?s3cret=x@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:%s3cret@" + closed + "/shop"}},
		{cli.ExitNotReady, []string{"--database-url", "postgres://me:[s3cret@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:s3cret@" + closed + "/shop?sslmode=s3cret"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:s3cret@" + closed + "/shop?sslrootcert=/no/such/file"}},
		{cli.ExitUsage, []string{"--database-url", "http://me:s3cret@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"--database-url", "me:s3cret@" + closed}},
		{cli.ExitUsage, []string{"--database-url", "host=x password='s3cret"}},
		{cli.ExitUsage, []string{"--database-url", "host=x password=a s3cret"}},
		{cli.ExitUsage, []string{"postgres://me:s3cret@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"-dpostgres://me:s3cret@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"--postgres://me:s3cret@" + closed + "/shop"}},
	} {
		for _, command := range [][]string{{"migrate", "status"}, {"migrate"}, {}} {
			got := fencectl(t, append(command, c.args...)...)
			require.NotContains(t, got.Stderr, "s3cret", c.args)
			require.Empty(t, got.Stdout)
			if len(command) == 2 {
				require.Equal(t, c.code, got.Code, "%v: %s", c.args, got.Stderr)
			}
		}
	}
}

// closedPort is an address that refuses connections. No program gets this port by asking for a free one.
const closedPort = "127.0.0.1:1"

func TestErrors_SayWhatToDo(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	role := newRole(t, dsn, "login")
	as := func(role string) string { return with(t, with(t, dsn, "user", role), "password", "pw") }
	require.NoError(t, execute(t, connect(t, dsn), `create schema old;
		create function old.current_setting(text) returns text language sql as $$
			select case $1 when 'server_version_num' then '130016' when 'server_version' then '13.16' else pg_catalog.current_setting($1) end $$`))
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"no server":    {[]string{"status", "--database-url", "postgres://me@" + closedPort + "/shop"}, []string{"fencectl: failed to connect", "connection refused", "Check that Postgres runs, and where: --database-url (FENCEKIT_DATABASE_URL), PGHOST"}},
		"no host":      {[]string{"status", "--database-url", "postgres://me@no-such-host.invalid/shop"}, []string{"no-such-host.invalid", "Check that Postgres runs"}},
		"no database":  {[]string{"status", "--database-url", with(t, dsn, "dbname", "no_such_database")}, []string{"no_such_database", "Create the database first"}},
		"no login":     {[]string{"status", "--database-url", as(newRole(t, dsn, "nologin"))}, []string{"not permitted to log in", "Check user and password"}},
		"may not read": {[]string{"status", "--database-url", as(role)}, []string{"permission denied for schema fence", "--help says which one it needs"}},
		"may not make": {[]string{"up", "--schema", "shop", "--database-url", as(role)}, []string{"permission denied for database", "--help says which one it needs"}},
		// The server is made to look old by a function that shadows its own.
		"old server": {[]string{"up", "--schema", "shop", "--database-url", with(t, dsn, "search_path", "old,pg_catalog")}, []string{"PostgreSQL 13.16, and 14 is the oldest that works"}},
	} {
		got := fencectl(t, append([]string{"migrate"}, c.args...)...)
		require.Equal(t, cli.ExitNotReady, got.Code, name+": "+got.Stderr)
		require.Empty(t, got.Stdout, name)
		require.LessOrEqual(t, strings.Count(got.Stderr, "dial error"), 1, got.Stderr)
		for _, text := range c.says {
			require.Contains(t, got.Stderr, text, name)
		}
	}
}

// newRole makes a role of the server, which lives no longer than the test.
func newRole(t *testing.T, dsn, attribute string) (name string) {
	t.Helper()
	name = fmt.Sprintf("fencectl_%016x", rand.Uint64())
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "drop role "+name)
		require.NoError(t, err)
		require.NoError(t, conn.Close(context.Background()))
	})
	_, err = conn.Exec(t.Context(), "create role "+name+" password 'pw' "+attribute)
	require.NoError(t, err)
	return name
}

func TestErrors_BadLibpqVariableIsUsage(t *testing.T) {
	t.Setenv("PGPORT", "nonsense")
	got := fencectl(t, "migrate", "status")
	require.Equal(t, cli.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "libpq's variables")
}

func TestErrors_NameTheFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	got := fencectl(t, "migrate", "status", "--database-url", "host=127.0.0.1 sslmode=verify-full sslrootcert=/no/such/file")
	require.Equal(t, cli.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "open /no/such/file: no such file")
}

// A server that takes the connection and never says anything.
func TestTimeout_EndsTheWaitForASilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	got := fencectl(t, "migrate", "status", "--timeout", "50ms", "--database-url", "postgres://me@"+listener.Addr().String()+"/shop?sslmode=disable")
	require.Equal(t, cli.ExitNotReady, got.Code)
	require.Contains(t, got.Stderr, "gave up after 50ms (--timeout)")
}

func TestTimeout_EndsTheWaitForALock(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	release := block(t, dsn)
	got := fencectl(t, "migrate", "up", "--timeout", "300ms", "--database-url", dsn)
	require.Equal(t, cli.ExitNotReady, got.Code)
	require.Contains(t, got.Stderr, "gave up after 300ms (--timeout)")
	release()
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", dsn).Code)
}

// Giving up must not wait for the server that gave the reason to: left to
// itself, closing the connection takes 15 s.
func TestInterrupt_DoesNotWaitForAFrozenServer(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	defer block(t, dsn)()
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, proxy.Close()) }()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	code := make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, newRoot(), []string{"migrate", "up", "--timeout", "10m", "--database-url", proxy.DSN()}, io.Discard, io.Discard)
	}()
	awaitBlocked(t, dsn)
	proxy.Pause(pgproxy.ToServer)
	proxy.Pause(pgproxy.ToClient)
	began := time.Now()
	interrupt()
	require.Equal(t, cli.ExitInconclusive, <-code)
	require.Less(t, time.Since(began), 14*time.Second)
}

// block makes "migrate up" wait for a transaction that has made the schema and
// not ended; release rolls it back.
func block(t *testing.T, dsn string) (release func()) {
	t.Helper()
	tx, err := connect(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "create schema fence")
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}
