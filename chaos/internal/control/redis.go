package control

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"
)

// pollInterval is how often acquiring a lock of Redis is tried: Redis can't wait for it.
const pollInterval = 5 * time.Millisecond

func newRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

// poll tries until it succeeds, fails, or ctx ends.
func poll(ctx context.Context, try func(context.Context) (bool, error)) error {
	for {
		done, err := try(ctx)
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

// ownerValue is a value that no other holder has.
func ownerValue(label string) string { return label + " " + rand.Text() }

// deleteOwn deletes a key if it still has the value.
var deleteOwn = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("del", KEYS[1])
end
return 0`)

// redisHeld is a key of Redis with an owner's value.
type redisHeld struct {
	unchecked
	client *redis.Client
	key    string
	value  string
	since  time.Time // it expires a TTL after that, or later
}

// acquireRedis waits until there is no key, and sets one that expires.
func acquireRedis(ctx context.Context, client *redis.Client, key, label string, ttl time.Duration) (redisHeld, error) {
	h := redisHeld{client: client, key: key, value: ownerValue(label)}
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		h.since = time.Now()
		return client.SetNX(ctx, key, h.value, ttl).Result()
	})
	return h, err
}

// Release deletes the key, unless another holder has it by now.
func (h redisHeld) Release(ctx context.Context) error {
	return deleteOwn.Run(ctx, h.client, []string{h.key}, h.value).Err()
}
