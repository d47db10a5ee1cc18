package main

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// asFencectl makes a child of the test binary be fencectl.
const asFencectl = "FENCECTL_TEST_BE_FENCECTL"

func TestMain(m *testing.M) {
	if os.Getenv(asFencectl) != "" {
		main()
	}
	for _, name := range []string{"DATABASE_URL", "SCHEMA", "OUTPUT", "TIMEOUT"} {
		_ = os.Unsetenv("FENCEKIT_" + name) // a developer's settings are no part of the tests
	}
	testenv.Main(m)
}

// ending is what a run of fencectl left.
type ending struct {
	code           int
	stdout, stderr string
}

// fencectl runs the command line in this process.
func fencectl(t *testing.T, args ...string) ending {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), newRoot(), args, &stdout, &stderr)
	return ending{code, stdout.String(), stderr.String()}
}

// child is fencectl as a process of its own, with more environment variables.
func child(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asFencectl+"=1", "GORACE=atexit_sleep_ms=0") // no second of waiting at exit
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// finish waits for a child that has been started, or runs it.
func finish(t *testing.T, wait func() error) int {
	t.Helper()
	err := wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// with adds a setting to a DSN.
func with(t *testing.T, dsn, key, value string) string {
	t.Helper()
	if !strings.Contains(dsn, "://") {
		return dsn + " " + key + "='" + value + "'"
	}
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	query := u.Query()
	query.Set(key, value)
	u.RawQuery = query.Encode()
	return u.String()
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

// execute runs SQL in one transaction, by the simple protocol, as psql -1 does.
func execute(t *testing.T, conn *pgx.Conn, sql string) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := tx.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		return err
	})
}

// migrated returns a database with the schema, applied at a time that golden
// outputs can name.
func migrated(t *testing.T) (dsn string) {
	t.Helper()
	dsn = pgserver.Database(t)
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", dsn).code)
	require.NoError(t, execute(t, connect(t, dsn), "update fence.migration set applied_at = timestamptz '2026-01-02 03:04:05.678901+00' + version * interval '1 minute'"))
	return dsn
}
