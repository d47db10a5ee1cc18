package fencectl

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

func TestMain(m *testing.M) {
	clitest.Reexec(func() { Main() })
	for _, name := range []string{"DATABASE_URL", "SCHEMA", "OUTPUT", "TIMEOUT", "LOCKS", "ETCD_USER", "ETCD_PASSWORD", "ETCD_PASSWORD_FILE", "ETCD_CACERT", "ETCD_CERT", "ETCD_KEY", "ETCD_PREFIX"} {
		_ = os.Unsetenv("FENCEKIT_" + name) // a developer's settings are no part of the tests
	}
	testenv.Main(m)
}

// fencectl runs the command line in this process.
func fencectl(t *testing.T, args ...string) clitest.Ending {
	t.Helper()
	return clitest.Run(t, newRoot(), args...)
}

// ended is how a command is expected to end.
func ended(code int, stdout, stderr string) clitest.Ending {
	return clitest.Ending{Code: code, Stdout: stdout, Stderr: stderr}
}

// tableOf is a table of lines whose cells commas separate, the heading first; without lines it is nothing.
func tableOf(lines string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	heading, rows, _ := strings.Cut(lines, "\n")
	if lines != "" {
		fmt.Fprintln(w, strings.ToUpper(strings.NewReplacer(",", "\t", "_", " ").Replace(heading)))
	}
	for line := range strings.Lines(rows) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), ",")
		for i, cell := range cells {
			cells[i] = cmp.Or(cell, "-")
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // to a Builder nothing fails
	return b.String()
}

// ending is how a command line ends: with what code, and what it says on stderr.
type ending struct {
	args []string
	code int
	says string
}

// requireEndings requires it of command lines that begin with the same words.
func requireEndings(t *testing.T, words []string, all []ending) {
	t.Helper()
	for _, c := range all {
		got := fencectl(t, slices.Concat(words, c.args)...)
		require.Equal(t, c.code, got.Code, "%v: %s", c.args, got.Stderr)
		require.Contains(t, got.Stderr, c.says, c.args)
	}
}

// with adds a setting to a DSN.
func with(t *testing.T, dsn, key, value string) string {
	t.Helper()
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
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", dsn).Code)
	require.NoError(t, execute(t, connect(t, dsn), "update fence.migration set applied_at = timestamptz '2026-01-02 03:04:05.678901+00' + version * interval '1 minute'"))
	return dsn
}
