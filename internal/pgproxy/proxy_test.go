package pgproxy_test

import (
	"context"
	"strconv"
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
	port := strconv.Itoa(int(server.Port))
	for name, upstream := range map[string]string{
		"keywords":                   "host=" + server.Host + " port=" + port + " user=postgres dbname=postgres sslmode=disable",
		"url":                        pgserver.Shared(t).DSN(),
		"url with host as parameter": "postgres:///postgres?user=postgres&host=" + server.Host + "&port=" + port,
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

func TestOnCommit_MatchesTheWordOnly(t *testing.T) {
	f := newFixture(t)
	var seen []string
	f.proxy.OnCommit(func(sql string) *pgproxy.Action {
		seen = append(seen, sql)
		return nil
	})
	conn := f.connect()
	f.exec(conn, "select 1 as committed, 2 as commit_ts")
	f.exec(conn, "begin")
	f.exec(conn, "set constraints all immediate; Commit")
	require.Equal(t, []string{"set constraints all immediate; Commit"}, seen)
	f.proxy.OnCommit(nil)
	f.exec(conn, "begin; commit")
	require.Len(t, seen, 1)
}

// A prepared COMMIT is acted on when it is executed, not when it is parsed.
func TestOnCommit_SeesPreparedStatementsWhenExecuted(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	calls := 0
	f.proxy.OnCommit(func(string) *pgproxy.Action { calls++; return nil })
	_, err := conn.PgConn().Prepare(f.ctx, "end_of_it", "commit", nil)
	require.NoError(t, err)
	require.Equal(t, 0, calls)
	require.NoError(t, conn.PgConn().ExecPrepared(f.ctx, "end_of_it", nil, nil, nil).Read().Err)
	require.Equal(t, 1, calls)
	require.Equal(t, 1, f.ledger())
}
