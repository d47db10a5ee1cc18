package pglock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := postgres.Migrate(ctx, pool, "")
	return err
}

var template = pgserver.Template{Prepare: migrate}

func open(t testing.TB, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.MaxConns = 8
	for _, option := range options {
		option(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func newPool(t testing.TB) *pgxpool.Pool { return open(t, template.Database(t)) }

func newLocker(t testing.TB, pool *pgxpool.Pool, cfg *Config) *Locker {
	t.Helper()
	l, err := New(pool, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// patient ends a test that hangs; no machine needs that long.
func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t testing.TB, l *Locker, resource string) *lease {
	t.Helper()
	p, err := l.acquire(patient(t), true, "", resource)
	require.NoError(t, err)
	return p
}

func release(t testing.TB, p fence.Lease) {
	t.Helper()
	require.NoError(t, p.Release(patient(t)))
}

type result struct {
	lease fence.Lease
	err   error
}

// queued calls Acquire, and returns once that many wait for the resource.
func queued(t testing.TB, ctx context.Context, l *Locker, resource string, n int) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		lease, err := l.Acquire(ctx, resource)
		done <- result{lease, err}
	}()
	eventually(t, l.database.pool, "select count(*) = $2 from fence.lock_waiter where resource = $1", resource, n)
	require.Eventually(t, func() bool { // the answer may take longer
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.leases {
			if p.grant.Resource == resource && !p.owns && !p.waits {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond)
	return done
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing came within a minute")
		panic("unreachable")
	}
}

func granted(t testing.TB, c <-chan result) fence.Lease {
	t.Helper()
	r := receive(t, c)
	require.NoError(t, r.err)
	return r.lease
}

func eventually(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var ok bool
		err := pool.QueryRow(context.Background(), sql, args...).Scan(&ok)
		return err == nil && ok
	}, time.Minute, 5*time.Millisecond, sql)
}

func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func mustExec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func lossOf(t testing.TB, p fence.Lease) fence.LossReason {
	t.Helper()
	receive(t, p.Done())
	var loss *fence.LeaseLostError
	require.True(t, errors.As(p.Err(), &loss), "%v", p.Err())
	return loss.Reason
}
