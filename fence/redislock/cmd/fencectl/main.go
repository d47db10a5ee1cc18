// Command fencectl is that of Fencekit, for locks in Redis too: --locks redis://HOST:PORT/0?prefix=PREFIX.
package main

import (
	"context"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/fence/redislock"
	"github.com/fencekit/fencekit/internal/fencectl"
)

func main() {
	redis := fencectl.LockService{URL: "redis://HOST:PORT/DB?prefix=PREFIX", Open: open}
	fencectl.Main(redis, fencectl.LockService{URL: "rediss://HOST:PORT/DB?prefix=PREFIX", Open: open})
}

func open(_ context.Context, of *url.URL, ttl time.Duration) (fencectl.Locker, func(), error) {
	at, query := *of, of.Query()
	prefix := query.Get("prefix")
	query.Del("prefix")
	at.RawQuery = query.Encode()
	options, err := redis.ParseURL(at.String())
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(options)
	l, err := redislock.New(client, &redislock.Config{Prefix: prefix, TTL: ttl})
	return l, func() { _ = client.Close() }, err
}
