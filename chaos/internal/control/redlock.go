package control

import (
	"context"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	nodes "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var redlock = Control{
	Name:   "redlock",
	Title:  "Redlock of five nodes",
	Recipe: "Locks redsync's Mutex: a key that expires on at least three of five Redis servers.",
	Flaw:   "A server that granted the lock restarts empty, and is a majority with two others that had not; or the holder is paused past the expiry.",
	Needs:  []Need{Redlock},
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		l := &majority{ttl: s.TTL}
		var pools []nodes.Pool
		for _, addr := range s.Redis {
			client := newNode(addr)
			l.clients = append(l.clients, client)
			pools = append(pools, goredis.NewPool(client))
		}
		l.redsync = redsync.New(pools...)
		return l, nil
	},
}

type majority struct {
	clients []*redis.Client
	redsync *redsync.Redsync
	ttl     time.Duration
}

func (l *majority) Acquire(ctx context.Context, resource string) (Held, error) {
	m := l.redsync.NewMutex(keyPrefix("redlock")+resource, redsync.WithExpiry(l.ttl), redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return majorityHeld{mutex: m}, nil
}

func (l *majority) Close(context.Context) error { return closeAll(l.clients) }

type majorityHeld struct {
	unchecked
	mutex *redsync.Mutex
}

// Release fails if no majority still had the key.
func (h majorityHeld) Release(ctx context.Context) error {
	_, err := h.mutex.UnlockContext(ctx)
	return err
}
