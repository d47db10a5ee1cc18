package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

var redisReplica = Control{
	Name:   "redis-replica",
	Title:  "Redis with a replica to fail over to",
	Recipe: "Sets a key that expires on the server that is the primary, and deletes it there if it is still its own.",
	Flaw:   "The primary dies before the key has reached its replica, and the replica, promoted, grants the lock again.",
	Needs:  []Need{RedisReplica},
	Open: func(_ context.Context, s Servers, label string) (Lock, error) {
		l := &replicated{label: label, ttl: s.TTL}
		for _, addr := range s.Redis {
			l.clients = append(l.clients, newNode(addr))
		}
		return l, nil
	},
}

// newNode is a client of one of several servers: it doesn't retry, so that a server that is
// down doesn't delay the others.
func newNode(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
}

func closeAll(clients []*redis.Client) error {
	var errs []error
	for _, client := range clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

type replicated struct {
	clients []*redis.Client
	label   string
	ttl     time.Duration
}

func (l *replicated) Acquire(ctx context.Context, resource string) (Held, error) {
	client, err := l.primary(ctx)
	if err != nil {
		return nil, err
	}
	return acquireRedis(ctx, client, keyPrefix("redis-replica")+resource, l.label, l.ttl)
}

// primary returns the primary. A promoted replica is preferred to a restarted primary.
func (l *replicated) primary(ctx context.Context) (*redis.Client, error) {
	var none error
	for _, client := range slices.Backward(l.clients) {
		role, err := client.Do(ctx, "role").Slice()
		switch {
		case err != nil:
			none = errors.Join(none, err)
		case role[0] == "master":
			return client, nil
		}
	}
	return nil, fmt.Errorf("control: no Redis is a primary: %w", none)
}

func (l *replicated) Close(context.Context) error { return closeAll(l.clients) }
