package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// caller is a process in mid-call when its database, behind a proxy, becomes unavailable and
// stays so.
type caller struct {
	*process
	server   *pgserver.Server
	proxy    *pgproxy.Proxy
	mend     func()        // what was cut
	acquired chan struct{} // has a value for each lock that was acquired
	taken    []*pgxpool.Conn
}

// call does f in the background, and returns where its error will be.
func (c *caller) call(f func(ctx context.Context, tx pgx.Tx) error) chan error {
	done := make(chan error, 1)
	go func() { done <- guard.Do(context.Background(), c.Guard, "a", f) }()
	return done
}

// inside does begun in the midst of a transaction, which then goes on.
func (c *caller) inside(t *testing.T, begun func()) chan error {
	t.Helper()
	return c.call(func(ctx context.Context, tx pgx.Tx) error {
		if err := increment("a")(ctx, tx); err != nil {
			return err
		}
		begun()
		return increment("a")(ctx, tx)
	})
}

// outages begin a call, take the database away in the midst of it, and
// return where the call's error will be.
var outages = map[string]func(t *testing.T, c *caller) chan error{
	"Postgres is silent": func(t *testing.T, c *caller) chan error {
		begun := make(chan struct{})
		done := c.inside(t, func() {
			c.mend = c.proxy.Cut(netfault.ToServer, netfault.ToClient)
			close(begun)
		})
		awaitMoment(t, begun, done)
		return done
	},
	"Postgres is silent before the transaction": func(t *testing.T, c *caller) chan error {
		c.mend = c.proxy.Cut(netfault.ToServer)
		done := c.call(increment("a"))
		awaitBusy(t, c.process)
		return done
	},
	"a COMMIT is not answered": func(t *testing.T, c *caller) chan error {
		sealed := make(chan struct{})
		c.proxy.OnCommit(func(sql string) *pgproxy.Action {
			if isSeal(sql) {
				c.mend = c.proxy.Cut(netfault.ToServer)
				close(sealed)
				return pgproxy.SwallowCommit()
			}
			return nil
		})
		done := c.call(increment("a"))
		awaitMoment(t, sealed, done)
		return done
	},
	"the pool is taken": func(t *testing.T, c *caller) chan error {
		for range c.pool.Stat().MaxConns() {
			taken, err := c.pool.Acquire(t.Context())
			require.NoError(t, err)
			t.Cleanup(taken.Release) // the pool waits for them when it is closed
			c.taken = append(c.taken, taken)
		}
		done := c.call(increment("a"))
		awaitMoment(t, c.acquired, done)
		return done
	},
	"Postgres crashed": func(t *testing.T, c *caller) chan error {
		begun := make(chan struct{})
		done := c.inside(t, func() {
			require.NoError(t, c.server.Kill())
			close(begun)
		})
		awaitMoment(t, begun, done)
		return done
	},
	"the disk is full": func(t *testing.T, c *caller) chan error {
		begun := make(chan struct{})
		done := c.inside(t, func() {
			require.NoError(t, c.server.LimitFiles(context.Background(), 4096))
			close(begun)
		})
		awaitMoment(t, begun, done)
		return done
	},
}

// A Guard whose database stays unavailable closes within its bounds: its calls end with an
// error, and leave nothing behind. A second process gets the resource at once, and finds the
// data unchanged.
func TestClose_DuringAnOutageIsBounded(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, dsn, pool := ownPostgres(t, "a")
			proxy, err := pgproxy.New(dsn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			endpoint := etcdserver.Shared(t).Endpoint()
			lockCfg := etcd.Config{TTL: 10 * time.Minute}
			storeTimeout := time.Hour // Close ends the waits
			if name == "a COMMIT is not answered" {
				storeTimeout = 10 * time.Second // Close doesn't interrupt it
			}
			c := &caller{server: server, proxy: proxy, mend: func() {}, acquired: make(chan struct{}, 10)}
			c.process = newProcess(t, endpoint, proxy.DSN(), lockCfg, &guard.Config{
				KeepFor: -1, StoreTimeout: storeTimeout, ResolveTimeout: time.Second,
				Observers: []*guard.Observer{{Acquired: func(context.Context, fence.Grant, time.Duration) { c.acquired <- struct{}{} }}},
			})
			require.NoError(t, c.pool.Ping(t.Context())) // a first connection takes long on a slow machine
			require.NoError(t, guard.Do(t.Context(), c.Guard, "a", increment("a")))
			<-c.acquired
			done := begin(t, c)

			ended, cancel := context.WithCancel(t.Context())
			cancel()
			start := time.Now()
			err = c.Guard.Close(ended)
			t.Logf("closed in %v: %v", time.Since(start).Round(time.Millisecond), err)
			require.NoError(t, c.Guard.Close(patiently(t)), "on a slow machine the first may not have waited for long enough")
			require.Error(t, <-done)

			for _, conn := range c.taken {
				conn.Release()
			}
			proxy.OnQuery(nil)
			c.mend()
			require.NoError(t, server.Restart(t.Context()))
			other := newProcess(t, endpoint, dsn, lockCfg, nil)
			require.NoError(t, guard.Do(patiently(t), other.Guard, "a", increment("a")))
			pool.Reset()
			require.EqualValues(t, 2, value(t, pool, "a"))
			requireNothingLeft(t, pool)
			awaitIdle(t, c.process)
		})
	}
}

// requireNothingLeft waits until no transaction is open, nor an advisory lock held.
func requireNothingLeft(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		var locks, open int
		err := pool.QueryRow(context.Background(), `select (select count(*) from pg_locks where locktype = 'advisory'),
			(select count(*) from pg_stat_activity where state like 'idle in transaction%')`).Scan(&locks, &open)
		return err == nil && locks == 0 && open == 0
	}, time.Minute, 5*time.Millisecond)
}
