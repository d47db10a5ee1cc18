// Package python_test tests the client in Python, on a real etcd and Postgres.
package python_test

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
	"github.com/fencekit/fencekit/storage/postgres"
)

// interpreter is a Python that can import psycopg. The first one on the PATH often can't, where
// /usr/bin/python3, for which Debian packages psycopg, can.
var interpreter = process.Installed{
	Server: "Python with psycopg",
	Places: []string{
		"python3",
		"/usr/bin/python3",
		"/usr/local/bin/python3",
		"/opt/homebrew/bin/python3",
	},
	Arguments: []string{"-c", "import psycopg; assert psycopg.__version__ >= '3.1'; print(psycopg.__version__)"},
	Advice:    "sudo apt-get install python3-psycopg | sudo dnf install python3-psycopg3 | pip install 'psycopg[binary]'",
}

func init() { interpreter.Needed() }

func TestMain(m *testing.M) { testenv.Main(m) }

// database returns a fresh one with Fencekit's tables and a counter at 0.
func database(t *testing.T) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn = pgserver.Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "create table counter (value bigint not null); insert into counter values (0)")
	require.NoError(t, err)
	return dsn, pool
}

// increment reads, decides and writes, in statements of their own: without a fence two of them
// lose an update.
func increment(ctx context.Context, tx pgx.Tx) error {
	var value int64
	if err := tx.QueryRow(ctx, "select value from counter").Scan(&value); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "update counter set value = $1", value+1)
	return err
}

func counted(t *testing.T, pool *pgxpool.Pool) (value int64) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "select value from counter").Scan(&value))
	return value
}

// client is the module under test: embedded, so that a build can replace it (internal/test/mutants).
//
//go:embed fencekit.py
var client []byte

// program returns a command that runs a program of testdata.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, _, err := interpreter.Find(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fencekit.py"), client, 0o600))
	cmd := exec.Command(path, append([]string{filepath.Join("testdata", name)}, args...)...)
	cmd.Env = append(os.Environ(), "FENCEKIT_PYTHON="+dir)
	return cmd
}
