package control

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

var redisWatchdog = Control{
	Name:   "redis-watchdog",
	Title:  "Redis SET NX PX with a watchdog",
	Recipe: "Sets a key that expires with a unique value, extends it in the background, and deletes it if it is still its own.",
	Flaw:   "The holder is paused with its watchdog, or can't reach Redis, for longer than the expiry, and then writes beside its successor.",
	Needs:  []Need{Redis},
	Open: func(_ context.Context, s Servers, label string) (Lock, error) {
		return &watched{newRedis(s.Redis[0]), label, s.TTL}, nil
	},
}

type watched struct {
	client *redis.Client
	label  string
	ttl    time.Duration
}

func (l *watched) Acquire(ctx context.Context, resource string) (Held, error) {
	key, err := acquireRedis(ctx, l.client, keyPrefix("redis-watchdog")+resource, l.label, l.ttl)
	if err != nil {
		return nil, err
	}
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h := &watchedKey{redisHeld: key, stop: cancel, stopped: make(chan struct{})}
	go h.watch(watch, l.ttl)
	return h, nil
}

func (l *watched) Close(context.Context) error { return l.client.Close() }

// watchedKey is a key with a watchdog.
type watchedKey struct {
	redisHeld
	stop    context.CancelFunc
	stopped chan struct{} // closed when the watchdog has ended
}

// extendOwn extends a key if it still has the value.
var extendOwn = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("pexpire", KEYS[1], ARGV[2])
end
return 0`)

// watch extends the key three times in a TTL. It ignores failures.
func (h *watchedKey) watch(ctx context.Context, ttl time.Duration) {
	defer close(h.stopped)
	ticker := time.NewTicker(ttl / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = extendOwn.Run(ctx, h.client, []string{h.key}, h.value, ttl.Milliseconds()).Err()
		}
	}
}

// Release stops the watchdog before it deletes the key.
func (h *watchedKey) Release(ctx context.Context) error {
	h.stop()
	<-h.stopped
	return h.redisHeld.Release(ctx)
}
