// Package rediscontrol has the controls that lock in Redis. Only programs that run them link a
// client of Redis.
package rediscontrol

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	nodes "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

// All returns the controls of this package, for worker.Register.
func All() []worker.Control { return []worker.Control{redisSetnx, redisWatchdog, redlock} }

// servers are the Redis servers of one run: faults make them lose their data.
type servers []*redisserver.Server

func serve(number int) func(context.Context) (worker.Service, error) {
	return func(ctx context.Context) (worker.Service, error) {
		var all servers
		for range number {
			s, err := redisserver.Start(ctx)
			if err != nil {
				return nil, errors.Join(err, all.Stop(context.WithoutCancel(ctx)))
			}
			all = append(all, s)
		}
		return all, nil
	}
}

// Addresses implements worker.Service.
func (all servers) Addresses() (addresses []string) {
	for _, s := range all {
		addresses = append(addresses, s.Addr())
	}
	return addresses
}

func (all servers) minority() int { return (len(all) - 1) / 2 }

// Weaken implements worker.Service: it kills a minority, which is not enough to lose a lock.
func (all servers) Weaken(context.Context) (err error) {
	for _, s := range all[len(all)-all.minority():] {
		err = errors.Join(err, s.Kill())
	}
	return err
}

// Lose implements worker.Service: it restarts the minority and one more server: a majority without the lock.
func (all servers) Lose(ctx context.Context) (err error) {
	for _, s := range all[len(all)-all.minority()-1:] {
		err = errors.Join(err, s.Restart(ctx))
	}
	return err
}

// Stop implements worker.Service.
func (all servers) Stop(ctx context.Context) (err error) {
	for _, s := range all {
		err = errors.Join(err, s.Stop(ctx))
	}
	return err
}

const pollInterval = 5 * time.Millisecond

// acquire polls: Redis can't wait for a key to expire.
func acquire(ctx context.Context, client *redis.Client, key, value string, ttl time.Duration) error {
	for {
		done, err := client.SetNX(ctx, key, value, ttl).Result()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

var redisSetnx = worker.Control{
	Group: check.Group{
		Name:   "redis-setnx",
		Title:  "Redis SET NX PX, deleted unconditionally",
		Recipe: "Sets a key that expires, works, and deletes the key.",
		Flaw:   "The holder is paused past the expiry, writes beside its successor, and deletes the successor's key, so that a third gets the lock.",
	},
	Serve: serve(1),
	Open: func(s worker.Servers, label string) (worker.Acquire, error) {
		client := newClient(s.Service[0])
		return func(ctx context.Context, resource string) (worker.Held, error) {
			key := worker.KeyPrefix("redis-setnx") + resource
			err := acquire(ctx, client, key, label, s.TTL)
			return worker.Held{Release: func(ctx context.Context) error { return client.Del(ctx, key).Err() }}, err
		}, nil
	},
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

var (
	deleteOwn = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
	extendOwn = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)
)

var redisWatchdog = worker.Control{
	Group: check.Group{
		Name:   "redis-watchdog",
		Title:  "Redis SET NX PX with a watchdog",
		Recipe: "Sets a key that expires with a unique value, extends it in the background, and deletes it if it is still its own.",
		Flaw:   "The holder is paused with its watchdog, or can't reach Redis, for longer than the expiry, and then writes beside its successor.",
	},
	Serve: serve(1),
	Open: func(s worker.Servers, label string) (worker.Acquire, error) {
		client := newClient(s.Service[0])
		return func(ctx context.Context, resource string) (worker.Held, error) {
			key, value := worker.KeyPrefix("redis-watchdog")+resource, label+" "+rand.Text()
			if err := acquire(ctx, client, key, value, s.TTL); err != nil {
				return worker.Held{}, err
			}
			stop := watch(context.WithoutCancel(ctx), client, key, value, s.TTL)
			return worker.Held{Release: func(ctx context.Context) error {
				stop()
				return deleteOwn.Run(ctx, client, []string{key}, value).Err()
			}}, nil
		}, nil
	},
}

// watch extends a key three times in a TTL, until stop returns. It ignores failures.
func watch(ctx context.Context, client *redis.Client, key, value string, ttl time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(ttl / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_ = extendOwn.Run(ctx, client, []string{key}, value, ttl.Milliseconds()).Err()
			}
		}
	}()
	return func() { cancel(); <-stopped }
}

var redlock = worker.Control{
	Group: check.Group{
		Name:   "redlock",
		Title:  "Redlock of five nodes",
		Recipe: "Locks redsync's Mutex: a key that expires on at least three of five Redis servers.",
		Flaw:   "A server that granted the lock restarts empty, and is a majority with two others that had not; or the holder is paused past the expiry.",
	},
	Serve: serve(5),
	Open: func(s worker.Servers, _ string) (worker.Acquire, error) {
		var pools []nodes.Pool
		for _, addr := range s.Service {
			// It doesn't retry, so that a server that is down doesn't delay the others.
			pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})))
		}
		locks := redsync.New(pools...)
		return func(ctx context.Context, resource string) (worker.Held, error) {
			m := locks.NewMutex(worker.KeyPrefix("redlock")+resource, redsync.WithExpiry(s.TTL), redsync.WithTries(math.MaxInt))
			release := func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx) // it fails if no majority still had the key
				return err
			}
			return worker.Held{Release: release}, m.LockContext(ctx)
		}, nil
	},
}
