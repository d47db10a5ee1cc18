package control

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// AfterCheck is the point between the check and the COMMIT.
const AfterCheck = "between the check and the COMMIT"

var clientClock = Control{
	Name:   "client-clock",
	Title:  "Expiry, checked by the client's own clock",
	Recipe: "Sets a key of Redis that expires, and checks by its own clock before COMMIT that it can't have expired.",
	Flaw:   "The holder is paused, or its COMMIT is held up, after the check.",
	Point:  AfterCheck,
	Needs:  []Need{Redis},
	Open: func(_ context.Context, s Servers, label string) (Lock, error) {
		return &clocked{newRedis(s.Redis[0]), label, s.TTL, s.at}, nil
	},
}

type clocked struct {
	client *redis.Client
	label  string
	ttl    time.Duration
	at     func(point string)
}

func (l *clocked) Acquire(ctx context.Context, resource string) (Held, error) {
	key, err := acquireRedis(ctx, l.client, keyPrefix("client-clock")+resource, l.label, l.ttl)
	return clockedKey{key, key.since.Add(l.ttl), l.at}, err
}

func (l *clocked) Close(context.Context) error { return l.client.Close() }

// clockedKey is a key whose holder knows when it expires at the earliest.
type clockedKey struct {
	redisHeld
	deadline time.Time
	at       func(point string)
}

func (h clockedKey) Check(context.Context, pgx.Tx) error {
	if !time.Now().Before(h.deadline) {
		return fmt.Errorf("%w: its key expired at %v", ErrLockLost, h.deadline)
	}
	h.at(AfterCheck)
	return nil
}
