package demo

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// named has FENCEKIT_POSTGRES_DSN name a server, whose databases are read with a
// superuser's connection, for a role that may log in, and what rights says.
func named(t *testing.T, rights string) *pgx.Conn {
	t.Helper()
	ctx := patient(t)
	pg, err := pgserver.Start(ctx, &pgserver.Config{Local: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop(pg)) })
	conn, err := pgx.Connect(ctx, pg.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	_, err = conn.Exec(ctx, "create role guest login "+rights)
	require.NoError(t, err)
	dsn, err := url.Parse(pg.DSN())
	require.NoError(t, err)
	dsn.User = url.User("guest")
	t.Setenv(pgserver.DSNVar, dsn.String())
	return conn
}

func requireNoDatabases(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	rows, err := conn.Query(t.Context(), "select datname from pg_database where datname like 'inventory%'")
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDemo_LeavesANamedServerRunningAndClean(t *testing.T) {
	conn := named(t, "createdb")
	var out bytes.Buffer
	require.NoError(t, Run(patient(t), &out), out.String())
	require.Contains(t, out.String(), "sold exactly 100")
	requireNoDatabases(t, conn)
}

// A signal ends the demo's context, as here in the midst of an act.
func TestDemo_DropsItsDatabasesWhenInterrupted(t *testing.T) {
	conn := named(t, "createdb")
	ctx, interrupt := context.WithCancel(patient(t))
	defer interrupt()
	out := &watched{text: "is stopped there", seen: interrupt}
	require.Error(t, Run(ctx, out))
	require.Contains(t, out.String(), out.text)
	requireNoDatabases(t, conn)
}

// watched keeps what is written, and calls seen when a text is.
type watched struct {
	text string
	seen func()

	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.seen()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

func TestTry_LeavesANamedServerRunningAndClean(t *testing.T) {
	conn := named(t, "createdb")
	ctx, interrupt := context.WithCancel(patient(t))
	defer interrupt()
	cfg, err := ParseTry([]string{"-listen", "127.0.0.1:0"})
	require.NoError(t, err)
	out := &watched{text: "serving on", seen: interrupt}
	require.NoError(t, Try(ctx, cfg, out, quiet))
	require.Contains(t, out.String(), out.text)
	requireNoDatabases(t, conn)
	require.Contains(t, out.String(), ": "+os.Args[0]+" serve -listen", "what is printed can be run")
	require.Regexp(t, `\nserving on (http://127.0.0.1:\d+)\ntry: curl -s http://127.0.0.1:\d+/v1/skus \(Ctrl-C ends this\)\n$`, out.String())
}

// The address is free before anything else is begun, or nothing is.
func TestTry_AsksForItsAddressFirst(t *testing.T) {
	named(t, "nocreatedb") // it would fail at that next
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg, err := ParseTry([]string{"-listen", taken.Addr().String()})
	require.NoError(t, err)
	err = Try(patient(t), cfg, io.Discard, quiet)
	require.ErrorContains(t, err, "address already in use (choose another with -listen")
}

func TestTryAndDemo_SayWhichRightIsMissing(t *testing.T) {
	named(t, "nocreatedb")
	for name, run := range map[string]func() error{
		"demo": func() error { return Run(patient(t), &bytes.Buffer{}) },
		"try":  func() error { return Try(patient(t), service.Config{Listen: "127.0.0.1:0"}, &bytes.Buffer{}, quiet) },
	} {
		err := run()
		require.ErrorContains(t, err, "needs the right to create databases: alter role \"guest\" createdb", name)
	}
}
