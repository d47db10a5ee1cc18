package pgproxy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// generous is longer than any machine needs; only a hang reaches it.
const generous = time.Minute

func TestMain(m *testing.M) { testenv.Main(m) }

// fixture is a database behind a proxy, with a table "ledger" of one column.
type fixture struct {
	*testing.T
	ctx    context.Context
	direct *pgx.Conn // not through the proxy
	proxy  *pgproxy.Proxy
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	t.Cleanup(cancel)
	dsn := pgserver.Database(t)
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	f := &fixture{T: t, ctx: ctx, proxy: proxy, direct: connect(t, ctx, dsn)}
	f.exec(f.direct, "create table ledger (entry int)")
	return f
}

func connect(t *testing.T, ctx context.Context, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (f *fixture) connect() *pgx.Conn { f.Helper(); return connect(f.T, f.ctx, f.proxy.DSN()) }

func (f *fixture) exec(conn *pgx.Conn, sql string, args ...any) {
	f.Helper()
	_, err := conn.Exec(f.ctx, sql, args...)
	require.NoError(f, err)
}

// ledger counts committed entries.
func (f *fixture) ledger() (n int) {
	f.Helper()
	require.NoError(f, f.direct.QueryRow(f.ctx, "select count(*) from ledger").Scan(&n))
	return n
}

// begin starts a transaction through the proxy that has added an entry.
func (f *fixture) begin() *pgx.Conn {
	f.Helper()
	conn := f.connect()
	f.exec(conn, "begin")
	f.exec(conn, "insert into ledger values ($1)", 1)
	return conn
}

// sessions waits until just this many other sessions are left in the database.
func (f *fixture) sessions(want int) {
	f.Helper()
	for n := -1; n != want; {
		require.NoError(f, f.direct.QueryRow(f.ctx, `select count(*) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`).Scan(&n))
	}
}

func always(a *pgproxy.Action) func(string) *pgproxy.Action {
	return func(string) *pgproxy.Action { return a }
}

func TestProxy_PassesEverythingOn(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	f.exec(conn, "commit")
	require.Equal(t, 1, f.ledger())

	big := strings.Repeat("x", 3<<20)
	var got string
	require.NoError(t, conn.QueryRow(f.ctx, "select $1::text", big).Scan(&got))
	require.Equal(t, big, got)

	n, err := conn.CopyFrom(f.ctx, pgx.Identifier{"ledger"}, []string{"entry"}, pgx.CopyFromRows([][]any{{1}, {2}}))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)

	batch := &pgx.Batch{}
	for range 100 {
		batch.Queue("insert into ledger values ($1)", 1)
	}
	require.NoError(t, conn.SendBatch(f.ctx, batch).Close())
	require.Equal(t, 103, f.ledger())

	_, err = conn.Exec(f.ctx, "select 1/0")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "22012", pgErr.Code)
}

func TestProxy_PassesCancelRequestsOn(t *testing.T) {
	f := newFixture(t)
	conn := f.connect()
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Exec(f.ctx, "select pg_sleep(1000)")
		failed <- err
	}()
	for active := false; !active; {
		require.NoError(t, f.direct.QueryRow(f.ctx, "select count(*) > 0 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()").Scan(&active))
	}
	require.NoError(t, conn.PgConn().CancelRequest(f.ctx))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, <-failed, &pgErr)
	require.Equal(t, "57014", pgErr.Code)
}

func TestNew_TakesEveryFormOfDSN(t *testing.T) {
	server, err := pgx.ParseConfig(pgserver.Shared(t).DSN())
	require.NoError(t, err)
	for name, upstream := range map[string]string{
		"keywords":                   "host=" + server.Host + " port=" + portOf(server) + " user=postgres dbname=postgres sslmode=disable",
		"url":                        pgserver.Shared(t).DSN(),
		"url with host as parameter": "postgres:///postgres?user=postgres&host=" + server.Host + "&port=" + portOf(server),
	} {
		t.Run(name, func(t *testing.T) {
			proxy, err := pgproxy.New(upstream)
			require.NoError(t, err)
			defer proxy.Close()
			dsn := proxy.DSN()
			require.Contains(t, dsn, strings.Split(proxy.Addr(), ":")[1])
			require.NoError(t, connect(t, t.Context(), dsn).Ping(t.Context()))
		})
	}
	for _, upstream := range []string{"nowhere", "postgres://%zz/"} {
		_, err := pgproxy.New(upstream)
		require.ErrorContains(t, err, "pgproxy:", upstream)
	}
}

func TestReset_EndsSessionsAndAcceptsNewOnes(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	f.proxy.Reset()
	_, err := conn.Exec(f.ctx, "commit")
	require.Error(t, err)
	f.sessions(0)
	require.Equal(t, 0, f.ledger())
	require.NoError(t, f.connect().Ping(f.ctx))
}
