package fencectl

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

func TestUsage_Is64WithAHint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  string // separated by blanks
		says  string
		hints string
	}{
		{"", "which command? fencectl has audit, completion, doctor, epoch, exec, history, locks, migrate, protect, protected, tokens, unprotect, version", "fencectl"},
		{"migrat up", `no command "migrat"; did you mean migrate?`, "fencectl"},
		{"migrate staus --nonsense", `no command "staus"; did you mean status?`, "fencectl migrate"},
		{"help migrate drop", `no command "drop"`, "fencectl help"},
		{"version extra", "no arguments", "fencectl version"},
		{"migrate up --dry", "unknown flag --dry", "fencectl migrate up"},
		{"migrate up --schema", "flag needs an argument: --schema", "fencectl migrate up"},
		{"migrate up --schema=", "--schema is empty", "fencectl migrate up"},
		{"migrate up --schema Shop", `schema name "Shop": want lower-case letters`, "fencectl migrate up"},
		{"migrate status -o xml", "want one of table, json", "fencectl migrate status"},
		{"migrate status --timeout soon", "--timeout", "fencectl migrate status"},
		{"migrate status --timeout 0s", "want more than 0", "fencectl migrate status"},
		{"history policy --off --keep 1h", "none of the others can be", "fencectl history policy"},
		{"history hold sku/1", "required: --reason\n", "fencectl history hold"},
		{"locks evict --expected-token 5", "takes one argument, RESOURCE", "fencectl locks evict"},
	} {
		got := fencectl(t, strings.Fields(c.args)...)
		require.Equal(t, cli.ExitUsage, got.Code, c.args)
		require.Empty(t, got.Stdout, c.args)
		require.Contains(t, got.Stderr, c.says)
		require.True(t, strings.HasSuffix(got.Stderr, fmt.Sprintf("Run \"%s --help\" for usage.\n", c.hints)), got.Stderr)
	}
}

// A script's unset variable is no wish for everything, or for the default. What asks for a time shows one.
func TestUsage_NoFlagOrArgumentIsEmpty(t *testing.T) {
	t.Parallel()
	tried := 0
	requireUsage := func(cmd *cobra.Command, says string, args ...string) {
		tried++
		got := fencectl(t, append(strings.Fields(cmd.CommandPath())[1:], args...)...)
		require.Equal(t, cli.ExitUsage, got.Code, "%s %q: %s", cmd.CommandPath(), args, got.Stderr)
		require.Contains(t, got.Stderr, says)
	}
	var try func(*cobra.Command)
	try = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			try(below)
		}
		if cmd.HasSubCommands() {
			return
		}
		var one []string
		if words := strings.Fields(cmd.Use); len(words) > 1 && strings.ToUpper(words[1]) == words[1] {
			one = []string{"x", "--", "true"}[:map[bool]int{true: 3, false: 1}[cmd.Name() == "exec"]]
			requireUsage(cmd, "empty", append([]string{""}, one[1:]...)...)
		}
		for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				if f.Value.Type() != "bool" {
					requireUsage(cmd, "--"+f.Name, append([]string{"--" + f.Name + "="}, one...)...)
				}
				if example := map[string]string{"time": "like 2026-03-03T10:00:00Z", "age": "like 90d", "duration": "30s"}[f.Value.Type()]; example != "" {
					requireUsage(cmd, example, append([]string{"--" + f.Name + "="}, one...)...)
					requireUsage(cmd, example, append([]string{"--" + f.Name, "soon"}, one...)...)
					requireUsage(cmd, example, "--"+f.Name)
				}
			})
		}
	}
	try(newRoot())
	require.Greater(t, tried, 200)
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
		{cli.ExitNotReady, []string{"--database-url", "postgres://me:12?s3cret=x@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:%s3cret@" + closed + "/shop"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:s3cret@" + closed + "/shop?sslmode=s3cret"}},
		{cli.ExitUsage, []string{"--database-url", "postgres://me:s3cret@" + closed + "/shop?sslrootcert=/no/such/file"}},
		{cli.ExitUsage, []string{"--database-url", "host=x password='s3cret"}},
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

func TestFlags_VariableStandsInAndFlagWins(t *testing.T) {
	dsn := pgserver.Database(t)
	t.Setenv("FENCEKIT_DATABASE_URL", dsn)
	t.Setenv("FENCEKIT_SCHEMA", "shop")
	t.Setenv("FENCEKIT_OUTPUT", "json")
	t.Setenv("FENCEKIT_TIMEOUT", "5m")
	got := fencectl(t, "migrate", "up")
	require.Equal(t, ended(cli.ExitOK, got.Stdout, fmt.Sprintf("applied %d migrations to schema shop\n", len(known(t)))), got)
	require.Contains(t, got.Stdout, "    \"version\": 1,\n    \"name\": \"schema\"\n")
	require.Contains(t, fencectl(t, "migrate", "up", "--schema", "store", "-o", "table").Stdout, "VERSION  NAME\n1        schema\n")
	require.Equal(t, cli.ExitNotReady, fencectl(t, "migrate", "status", "--database-url", with(t, dsn, "dbname", "no_such_database")).Code)

	t.Setenv("FENCEKIT_TIMEOUT", "1ns")
	require.Contains(t, fencectl(t, "migrate", "status").Stderr, "gave up after 1ns")
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "status", "--timeout", "5m").Code)
}

func TestFlags_BadVariableIsUsageAndNamed(t *testing.T) {
	for name, value := range map[string]string{"FENCEKIT_SCHEMA": "Fence", "FENCEKIT_OUTPUT": "xml", "FENCEKIT_TIMEOUT": "soon"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			status := []string{"migrate", "status", "--database-url", "postgres://" + closedPort}
			got := fencectl(t, status...)
			require.Equal(t, cli.ExitUsage, got.Code)
			require.Empty(t, got.Stdout)
			require.Contains(t, got.Stderr, name)
			require.NoError(t, os.Unsetenv(name))
			require.Equal(t, cli.ExitNotReady, fencectl(t, status...).Code)
		})
	}
}

func TestProcess_SignalIsInconclusiveAndUndoesTheTransaction(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dsn := pgserver.Database(t)
			release := block(t, dsn)
			cmd := clitest.Child(t, nil, "migrate", "up", "--timeout", "10m", "--database-url", dsn)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.NoError(t, cmd.Start())
			awaitBlocked(t, dsn)
			require.NoError(t, cmd.Process.Signal(signal))
			require.Equal(t, cli.ExitInconclusive, clitest.ExitCode(t, cmd.Wait), stderr.String())
			require.Contains(t, stderr.String(), "fencectl: interrupted: ")
			release()
			require.Equal(t, cli.ExitNotReady, fencectl(t, "migrate", "status", "--database-url", dsn).Code)
		})
	}
}

// awaitBlocked returns once fencectl waits for a lock.
func awaitBlocked(t *testing.T, dsn string) {
	t.Helper()
	conn := connect(t, dsn)
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and application_name = 'fencectl' and wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == 1
	}, time.Minute, 10*time.Millisecond)
}
