package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
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
