package control_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

const (
	resource = "sku/1"
	stock    = 10
	// bound is for what is never reached when all is well.
	bound = 5 * time.Minute
	// long is a TTL that no test reaches.
	long = 10 * time.Minute
)

// world is a shop: a database, the servers that a control needs, and workers
// that sell one thing under its lock.
type world struct {
	*testing.T
	ctx     context.Context
	control control.Control
	pool    *pgxpool.Pool // no worker's
	servers control.Servers
	redis   []*redisserver.Server
	link    *netfault.Link // from A to etcd or Redis, if there is one of them
	revert  func()         // of the cut of link
}

func newWorld(t *testing.T, c control.Control) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	w := &world{T: t, ctx: ctx, control: c}
	w.servers.Postgres = pgserver.Database(t)
	w.pool = w.openPool()
	if c.Prepare != nil {
		require.NoError(t, c.Prepare(ctx, w.pool))
		require.NoError(t, c.Prepare(ctx, w.pool), "what is there stays")
	}
	w.exec("create table stock (sku text primary key, quantity int not null)")
	w.exec("create table sale (number bigint generated always as identity, seller text not null, token bigint not null)")
	w.exec("insert into stock values ($1, $2)", resource, stock)
	for _, need := range c.Needs {
		w.start(need)
	}
	return w
}

func (w *world) start(need control.Need) {
	w.Helper()
	switch need {
	case control.Etcd:
		endpoint := etcdserver.Shared(w).Endpoint()
		w.servers.Etcd = []string{endpoint}
		w.newLink(strings.TrimPrefix(endpoint, "http://"))
	case control.Redis:
		w.startRedis()
		w.newLink(w.redis[0].Addr())
	case control.RedisReplica:
		w.startRedis()
		w.addRedis(redisserver.StartReplica(w.ctx, w.redis[0]))
	case control.Redlock:
		for range 5 {
			w.startRedis()
		}
	default:
		w.Fatalf("unknown need %q", need)
	}
}

func (w *world) startRedis() {
	w.Helper()
	w.addRedis(redisserver.Start(w.ctx, nil))
}

func (w *world) addRedis(r *redisserver.Server, err error) {
	w.Helper()
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, r.Stop(context.Background())) })
	w.redis = append(w.redis, r)
	w.servers.Redis = append(w.servers.Redis, r.Addr())
}

func (w *world) newLink(upstream string) {
	w.Helper()
	link, err := netfault.New(upstream)
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, link.Close()) })
	w.link = link
}

func (w *world) openPool() *pgxpool.Pool {
	w.Helper()
	pool, err := pgxpool.New(w.ctx, w.servers.Postgres)
	require.NoError(w, err)
	w.Cleanup(pool.Close)
	return pool
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.pool.Exec(w.ctx, sql, args...)
	require.NoError(w, err)
}

func (w *world) number(sql string, args ...any) (n int) {
	w.Helper()
	require.NoError(w, w.pool.QueryRow(w.ctx, sql, args...).Scan(&n))
	return n
}

// sold is how many sales there are, and taken what the stock knows of them.
func (w *world) sold() int { return w.number("select count(*) from sale") }
func (w *world) taken() int {
	return stock - w.number("select quantity from stock where sku = $1", resource)
}

// redisClient is a client of the server that is asked, not of a worker.
func (w *world) redisClient() *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: w.redis[0].Addr()})
	w.Cleanup(func() { require.NoError(w, client.Close()) })
	return client
}

// key is the only key of the only Redis.
func (w *world) key() string {
	w.Helper()
	keys, err := w.redisClient().Keys(w.ctx, "*").Result()
	require.NoError(w, err)
	require.Len(w, keys, 1)
	return keys[0]
}

// worker is what a process of its own would be: a lock and a pool.
type worker struct {
	*world
	name string
	lock control.Lock
	pool *pgxpool.Pool
	at   func(point string) // nil: it doesn't care
}

// newA is the worker whose lock is going to be lost: its way to etcd or Redis is
// the link.
func (w *world) newA(ttl time.Duration) *worker {
	w.Helper()
	s := w.servers
	switch {
	case w.link != nil && s.Etcd != nil:
		s.Etcd = []string{"http://" + w.link.Addr()}
	case w.link != nil:
		s.Redis = []string{w.link.Addr()}
	}
	return w.open("A", s, ttl)
}

func (w *world) newWorker(name string) *worker {
	w.Helper()
	return w.open(name, w.servers, long)
}

func (w *world) open(name string, s control.Servers, ttl time.Duration) *worker {
	w.Helper()
	worker := &worker{world: w, name: name, pool: w.openPool()}
	s.Redis = slices.Clone(s.Redis)
	s.TTL = ttl
	s.At = func(point string) {
		if worker.at != nil {
			worker.at(point)
		}
	}
	lock, err := w.control.Open(w.ctx, s, name)
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, lock.Close(context.Background())) })
	worker.lock = lock
	return worker
}

// acquire acquires, until the test's time is over.
func (k *worker) acquire() control.Held {
	k.Helper()
	held, err := k.lock.Acquire(k.ctx, resource)
	require.NoError(k, err)
	return held
}

// requireExcluded asserts that the worker doesn't get the lock as long as a short
// time lasts.
func (k *worker) requireExcluded() {
	k.Helper()
	short, cancel := context.WithTimeout(k.ctx, 200*time.Millisecond)
	defer cancel()
	_, err := k.lock.Acquire(short, resource)
	require.Error(k, err, "%s is let in beside the holder", k.name)
}
