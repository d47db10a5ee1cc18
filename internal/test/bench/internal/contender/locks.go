package contender

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/fence/redislock"
	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
)

// ttl is the time to live, in seconds, of all locks that have one.
const ttl = 10

// acquire acquires a lock for a goroutine.
type acquire = func(ctx context.Context, goroutine int, name string) (release func(context.Context) error, err error)

// locked is what articles show: acquire a lock, run the operation in a transaction that nothing guards,
// release the lock.
func locked(name string, lock func(t *load.Target) (acquire, error), unsafe string) Contender {
	open := func(ctx context.Context, t *load.Target) (load.Work, error) {
		pool, err := newPool(ctx, t)
		if err != nil {
			return load.Work{}, err
		}
		acquire, err := lock(t)
		return load.Work{Do: func(ctx context.Context, g int, item load.Item) error {
			release, err := acquire(ctx, g, t.Cell+"/"+item.Resources[0])
			if err != nil {
				return err
			}
			sold := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return sellReading(ctx, tx, item) })
			return errors.Join(sold, release(context.WithoutCancel(ctx)))
		}}, err
	}
	return Contender{Name: name + " + transaction", Open: open, Unsafe: unsafe}
}

func newEtcd(t *load.Target) (*clientv3.Client, error) {
	client, err := clientv3.New(etcd.ClientConfig(t.Etcd))
	if err == nil {
		t.OnClose(func(context.Context) error { return client.Close() })
	}
	return client, err
}

func newSessions(t *load.Target, client *clientv3.Client) ([]*concurrency.Session, error) {
	sessions, errs := make([]*concurrency.Session, t.Goroutines), make([]error, t.Goroutines)
	each := func(do func(i int)) {
		var all sync.WaitGroup
		for i := range sessions {
			all.Go(func() { do(i) })
		}
		all.Wait()
	}
	each(func(i int) { sessions[i], errs[i] = concurrency.NewSession(client, concurrency.WithTTL(ttl)) })
	t.OnClose(func(context.Context) error {
		each(func(i int) { errs[i] = sessions[i].Close() })
		return errors.Join(errs...)
	})
	return sessions, errors.Join(errs...)
}

// mutex is the lock of etcd's own package concurrency. Each goroutine has a session of its
// own: in one session all goroutines would hold it together.
func mutex(t *load.Target) (acquire, error) {
	client, err := newEtcd(t)
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(t, client)
	return func(ctx context.Context, g int, name string) (func(context.Context) error, error) {
		m := concurrency.NewMutex(sessions[g], name)
		return m.Unlock, m.Lock(ctx)
	}, err
}

// closer is a Locker that has to be closed.
type closer interface {
	fence.Locker
	Close(ctx context.Context) error
}

// lockService makes a Locker. Only the one in Postgres needs the pool.
type lockService func(t *load.Target, pool *pgxpool.Pool) (closer, error)

func inEtcd(t *load.Target, _ *pgxpool.Pool) (closer, error) {
	client, err := newEtcd(t)
	if err != nil {
		return nil, err
	}
	return etcd.New(client, &etcd.Config{Prefix: "bench-" + t.Cell})
}

func inPostgres(_ *load.Target, pool *pgxpool.Pool) (closer, error) { return pglock.New(pool, nil) }

// inRedis has the same keys in each cell: the databases of earlier ones have seen their counts.
func inRedis(t *load.Target, _ *pgxpool.Pool) (closer, error) { return redislock.New(newRedis(t), nil) }

func newLocker(t *load.Target, pool *pgxpool.Pool, locks lockService) (fence.Locker, error) {
	l, err := locks(t, pool)
	if err == nil {
		t.OnClose(l.Close)
	}
	return l, err
}

func newRedis(t *load.Target) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: t.Redis, PoolSize: t.Goroutines})
	t.OnClose(func(context.Context) error { return client.Close() })
	return client
}

// redsyncLock is redsync's lock on one Redis, with its own pauses between attempts.
func redsyncLock(t *load.Target) (acquire, error) {
	locks := redsync.New(goredis.NewPool(newRedis(t)))
	return func(ctx context.Context, _ int, name string) (func(context.Context) error, error) {
		m := locks.NewMutex(name, redsync.WithExpiry(ttl*time.Second), redsync.WithTries(math.MaxInt))
		return func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }, m.LockContext(ctx)
	}, nil
}
