package control

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

var redisSetnx = Control{
	Name:   "redis-setnx",
	Title:  "Redis SET NX PX, deleted unconditionally",
	Recipe: "Sets a key that expires, works, and deletes the key.",
	Flaw:   "The holder is paused past the expiry, writes beside its successor, and deletes the successor's key, so that a third gets the lock.",
	Needs:  []Need{Redis},
	Open: func(_ context.Context, s Servers, label string) (Lock, error) {
		return &setnx{newRedis(s.Redis[0]), label, s.TTL}, nil
	},
}

type setnx struct {
	client *redis.Client
	label  string
	ttl    time.Duration
}

func (l *setnx) Acquire(ctx context.Context, resource string) (Held, error) {
	key := keyPrefix("redis-setnx") + resource
	err := poll(ctx, func(ctx context.Context) (bool, error) { return l.client.SetNX(ctx, key, l.label, l.ttl).Result() })
	if err != nil {
		return nil, err
	}
	return unownedKey{client: l.client, key: key}, nil
}

func (l *setnx) Close(context.Context) error { return l.client.Close() }

// unownedKey is a key whose value is never compared.
type unownedKey struct {
	unchecked
	client *redis.Client
	key    string
}

// Release deletes the key, even if another holder has it by now.
func (h unownedKey) Release(ctx context.Context) error { return h.client.Del(ctx, h.key).Err() }
