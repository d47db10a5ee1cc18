package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func startServer(t testing.TB, settings map[string]string) (server *pgserver.Server, dsn string) {
	t.Helper()
	return startWith(t, &pgserver.Config{Settings: settings})
}

func startWith(t testing.TB, cfg *pgserver.Config) (server *pgserver.Server, dsn string) {
	t.Helper()
	server, err := pgserver.Start(t.Context(), cfg)
	require.NoError(t, err)
	stopLater(t, server)
	dsn, err = server.CreateDatabase(t.Context(), "app")
	require.NoError(t, err)
	pool := openPool(t, dsn)
	require.NoError(t, migrate(t.Context(), pool))
	pool.Close()
	return server, dsn
}

func stopLater(t testing.TB, server interface{ Stop(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
}

type faulty struct {
	dsn    string
	proxy  *pgproxy.Proxy
	pool   *pgxpool.Pool // direct
	direct *postgres.Store

	through *pgxpool.Pool // the proxy
	store   *postgres.Store
	conns   *conns // of through
}

func newFaulty(t testing.TB, level pgx.TxIsoLevel, options ...func(*pgxpool.Config)) *faulty {
	t.Helper()
	return newFaultyOn(t, migrated(t), level, options...)
}

func newFaultyOn(t testing.TB, dsn string, level pgx.TxIsoLevel, options ...func(*pgxpool.Config)) *faulty {
	t.Helper()
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	f := &faulty{dsn: dsn, proxy: proxy, pool: openPool(t, dsn), conns: &conns{}}
	f.through = openPool(t, proxy.DSN(), append([]func(*pgxpool.Config){f.conns.collect}, options...)...)
	f.direct, f.store = newStore(t, f.pool, at(level)), newStore(t, f.through, at(level))
	return f
}

func (f *faulty) onQuery(action *pgproxy.Action, part string) {
	f.proxy.OnQuery(func(sql string) *pgproxy.Action {
		if strings.Contains(sql, part) {
			return action
		}
		return nil
	})
}

type conns struct {
	mu  sync.Mutex
	all []*pgconn.PgConn
}

func (c *conns) collect(cfg *pgxpool.Config) {
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, conn.PgConn())
		return nil
	}
}

// settle waits until pgx has finished closing connections: for a broken one it sends a
// cancel request, which could cancel a later statement of the test.
func (c *conns) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		if conn.IsClosed() {
			<-conn.CleanupDone()
		}
	}
}

func eventually(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var ok bool
		err := pool.QueryRow(context.Background(), "select coalesce(("+sql+"), false)", args...).Scan(&ok)
		return err == nil && ok
	}, time.Minute, 5*time.Millisecond, sql)
}

func waiting(t testing.TB, pool *pgxpool.Pool, event string) int {
	t.Helper()
	const backends = "from pg_stat_activity where datname = current_database() and wait_event = $1 and state = 'active' and backend_type = 'client backend'"
	eventually(t, pool, "select count(*) = 1 "+backends, event)
	return query[int](t, pool, "select pid "+backends, event)
}

// noneInUse requires that all connections of a pool come back. The pool takes one that was closed
// off its list on a goroutine of its own.
func noneInUse(t testing.TB, pool *pgxpool.Pool, msgAndArgs ...any) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, time.Minute, time.Millisecond, msgAndArgs...)
}

func background[T any](f func() (T, error)) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		value, err := f()
		done <- result[T]{value, err}
	}()
	return done
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

type result[T any] struct {
	value T
	err   error
}

func commit(txn storage.Txn[pgx.Tx]) <-chan result[[]storage.Claim] {
	return background(func() ([]storage.Claim, error) { return txn.Commit(context.Background(), nil) })
}
