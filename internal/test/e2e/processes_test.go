package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// process is what one process of a service has: clients, a locker and a guard
// of its own.
type process struct {
	*guard.Guard[pgx.Tx]
	locker *etcd.Locker
	pool   *pgxpool.Pool
}

func newProcess(t *testing.T, etcdEndpoints, dsn string, lockCfg etcd.Config, cfg *guard.Config, opts ...grpc.DialOption) *process {
	t.Helper()
	p := &process{}
	clientCfg := etcd.ClientConfig(strings.Split(etcdEndpoints, ",")...)
	clientCfg.DialOptions = append(clientCfg.DialOptions, opts...)
	client, err := clientv3.New(clientCfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p.pool, err = pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(p.pool.Close)
	lockCfg.Prefix = t.Name()
	p.locker, err = etcd.New(client, &lockCfg)
	require.NoError(t, err)
	store, err := postgres.NewStore(p.pool, nil)
	require.NoError(t, err)
	p.Guard, err = guard.New(p.locker, store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { closeProcess(t, p) })
	return p
}

// closeProcess closes what can be closed within a bound: a test may have taken
// the servers away.
func closeProcess(t *testing.T, p *process) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := errors.Join(p.Guard.Close(ctx), p.locker.Close(ctx)); err != nil {
		t.Log("closing:", err)
	}
}

// counters returns a fresh database with a table of counters.
func counters(t *testing.T, keys ...string) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn = pgserver.Database(t)
	return dsn, migrateCounters(t, dsn, keys...)
}

func migrateCounters(t *testing.T, dsn string, keys ...string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "create table counter (key text primary key, value bigint not null)")
	require.NoError(t, err)
	for _, key := range keys {
		_, err = pool.Exec(t.Context(), "insert into counter values ($1, 0)", key)
		require.NoError(t, err)
	}
	return pool
}

// increment reads, decides and writes, in statements of their own: without a
// fence two of them lose an update.
func increment(key string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		var value int64
		if err := tx.QueryRow(ctx, "select value from counter where key = $1", key).Scan(&value); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update counter set value = $2 where key = $1", key, value+1)
		return err
	}
}

func value(t *testing.T, pool *pgxpool.Pool, key string) (v int64) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "select value from counter where key = $1", key).Scan(&v))
	return v
}

// A thousand resources held by one process are one lease, and no goroutines.
func TestManyResources_OneLeaseAndNoGoroutinesWhileIdle(t *testing.T) {
	dsn, _ := counters(t)
	p := newProcess(t, etcdserver.Shared(t).Endpoint(), dsn, etcd.Config{TTL: 10 * time.Minute}, &guard.Config{KeepFor: time.Hour})
	touch := func(ctx context.Context, tx pgx.Tx) error { // without a row that others wait for
		_, err := tx.Exec(ctx, "select 1")
		return err
	}
	hold := func(from, to int) {
		var workers sync.WaitGroup
		next := make(chan int)
		for range 4 {
			workers.Go(func() {
				for n := range next {
					name := fmt.Sprintf("r/%d", n)
					if err := guard.Hold(t.Context(), p.Guard, name, func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
						return guard.Do(ctx, h, name, touch)
					}, guard.Retryable()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for n := from; n < to; n++ {
			next <- n
		}
		close(next)
		workers.Wait()
	}
	hold(0, 10)
	few, bytes := settledGoroutines(), inUse()
	hold(10, 1000)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < few+50 }, time.Minute, 5*time.Millisecond,
		"goroutines while 1,000 resources are held, against %d while 10 are", few)
	t.Logf("each takes %d bytes", (inUse()-bytes)/990)

	client := etcdserver.Client(t)
	keys, err := client.Get(t.Context(), t.Name()+"/locks/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, keys.Kvs, 1000)
	for _, kv := range keys.Kvs {
		require.Equal(t, keys.Kvs[0].Lease, kv.Lease)
	}
}

func inUse() (bytes int64) {
	var mem runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&mem)
	return int64(mem.HeapAlloc + mem.StackInuse)
}

// settledGoroutines is the number of goroutines once it has stopped falling.
func settledGoroutines() int {
	least := runtime.NumGoroutine()
	for same := 0; same < 20; same++ {
		time.Sleep(5 * time.Millisecond) // gives what is ending the time to end; a number too high can only fail the test
		if n := runtime.NumGoroutine(); n < least {
			least, same = n, 0
		}
	}
	return least
}
