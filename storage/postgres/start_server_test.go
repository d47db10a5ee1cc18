package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
)

// startServer starts a server of the test's own, with a migrated database, and
// returns the DSN of that.
func startServer(t testing.TB, settings map[string]string) (server *pgserver.Server, dsn string) {
	t.Helper()
	return startWith(t, &pgserver.Config{Settings: settings})
}

// startLocal is startServer for a server whose files are at hand.
func startLocal(t testing.TB, settings map[string]string) (server *pgserver.Server, dsn string) {
	t.Helper()
	return startWith(t, &pgserver.Config{Local: true, Settings: settings})
}

func startWith(t testing.TB, cfg *pgserver.Config) (server *pgserver.Server, dsn string) {
	t.Helper()
	server, err := pgserver.Start(t.Context(), cfg)
	require.NoError(t, err)
	stopLater(t, server)
	dsn, err = server.CreateDatabase(t.Context(), "app")
	require.NoError(t, err)
	require.NoError(t, migrate(t.Context(), dsn))
	return server, dsn
}

// stopLater stops a server, or a pooler, when the test has ended.
func stopLater(t testing.TB, server interface{ Stop(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
}

// eventually waits until sql selects true.
func eventually(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var ok bool
		err := pool.QueryRow(context.Background(), "select coalesce(("+sql+"), false)", args...).Scan(&ok)
		return err == nil && ok
	}, time.Minute, 5*time.Millisecond, sql)
}

// waiting waits until a backend waits for event, and returns its process id.
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

// background runs f and returns the channel of its result.
func background[T any](f func() (T, error)) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		value, err := f()
		done <- result[T]{value, err}
	}()
	return done
}

// receive returns the next value of c.
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

// commit commits in the background.
func commit(txn storage.Txn[pgx.Tx]) <-chan result[[]storage.Claim] {
	return background(func() ([]storage.Claim, error) { return txn.Commit(context.Background(), nil) })
}
