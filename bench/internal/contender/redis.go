package contender

import (
	"context"
	"crypto/rand"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/bench/internal/load"
)

func newRedis(t *load.Target) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: t.Redis, Dialer: t.Wire.Dial, PoolSize: t.Goroutines})
}

// Redsync is redsync's lock on one Redis, with its own pauses between attempts.
func Redsync(_ context.Context, t *load.Target) (*load.Work, error) {
	client := newRedis(t)
	locks := redsync.New(goredis.NewPool(client))
	return &load.Work{
		Acquire: func(ctx context.Context, g int) (func(context.Context) error, error) {
			m := locks.NewMutex(t.Cell+"/"+t.Item(g).Resources[0], redsync.WithExpiry(ttl*time.Second), redsync.WithTries(math.MaxInt))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }, nil
		},
		Close: func(context.Context) error { return client.Close() },
	}, nil
}

// deleteOwn deletes a key if it still has the holder's value.
var deleteOwn = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

// SetNX sets a key that expires, unless it is there, and tries again after each pause.
func SetNX(pause time.Duration) load.Open {
	return func(_ context.Context, t *load.Target) (*load.Work, error) {
		client := newRedis(t)
		acquire := func(ctx context.Context, g int) (func(context.Context) error, error) {
			key, value := t.Cell+"/"+t.Item(g).Resources[0], rand.Text()
			for {
				set, err := client.SetNX(ctx, key, value, ttl*time.Second).Result()
				if err != nil {
					return nil, err
				}
				if set {
					return func(ctx context.Context) error { return deleteOwn.Run(ctx, client, []string{key}, value).Err() }, nil
				}
				t.Retries.Add(1)
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(pause):
				}
			}
		}
		return &load.Work{Acquire: acquire, Close: func(context.Context) error { return client.Close() }}, nil
	}
}
