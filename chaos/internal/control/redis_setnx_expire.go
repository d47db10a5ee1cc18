package control

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// AfterSetnx is the point between SETNX and EXPIRE.
const AfterSetnx = "between SETNX and EXPIRE"

var redisSetnxExpire = Control{
	Name:     "redis-setnx-expire",
	Title:    "Redis SETNX, then EXPIRE",
	Recipe:   "Sets a key with one command, has it expire with the next, works, and deletes the key.",
	Flaw:     "The holder is killed between the two commands, and its key stays for ever.",
	Point:    AfterSetnx,
	Liveness: true,
	Needs:    []Need{Redis},
	Open: func(_ context.Context, s Servers, label string) (Lock, error) {
		return &setnxExpire{newRedis(s.Redis[0]), label, s.TTL, s.at}, nil
	},
}

type setnxExpire struct {
	client *redis.Client
	label  string
	ttl    time.Duration
	at     func(point string)
}

func (l *setnxExpire) Acquire(ctx context.Context, resource string) (Held, error) {
	key := keyPrefix("redis-setnx-expire") + resource
	err := poll(ctx, func(ctx context.Context) (bool, error) { return l.client.SetNX(ctx, key, l.label, 0).Result() })
	if err != nil {
		return nil, err
	}
	l.at(AfterSetnx)
	if err := l.client.PExpire(ctx, key, l.ttl).Err(); err != nil {
		return nil, err
	}
	return unownedKey{client: l.client, key: key}, nil
}

func (l *setnxExpire) Close(context.Context) error { return l.client.Close() }
