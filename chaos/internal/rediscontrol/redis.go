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

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

// All returns the controls of this package, for control.Register.
func All() []control.Control { return []control.Control{redisSetnx, redisWatchdog, redlock} }

// servers are the Redis servers of one run. Runs don't share them: faults make them lose
// their data.
type servers []*redisserver.Server

// serve starts so many servers, which know nothing of each other.
func serve(number int) func(context.Context) (control.Service, error) {
	return func(ctx context.Context) (control.Service, error) {
		var all servers
		for range number {
			s, err := redisserver.Start(ctx, nil)
			if err != nil {
				return nil, errors.Join(err, all.Stop(context.WithoutCancel(ctx)))
			}
			all = append(all, s)
		}
		return all, nil
	}
}

// Addresses implements control.Service.
func (all servers) Addresses() (addresses []string) {
	for _, s := range all {
		addresses = append(addresses, s.Addr())
	}
	return addresses
}

// minority is how many servers can be down while the others grant a lock.
func (all servers) minority() int { return (len(all) - 1) / 2 }

// Weaken implements control.Service: it kills a minority, which is not enough to lose a lock.
func (all servers) Weaken(context.Context) error {
	for _, s := range all[len(all)-all.minority():] {
		if err := s.Kill(); err != nil {
			return err
		}
	}
	return nil
}

// Lose implements control.Service: it restarts the minority and one more server, which has
// nothing on disk: a majority without the lock.
func (all servers) Lose(ctx context.Context) error {
	for _, s := range all[len(all)-all.minority()-1:] {
		if err := s.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements control.Service.
func (all servers) Stop(ctx context.Context) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(errs...)
}

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
	control.Unchecked
	client *redis.Client
	key    string
	value  string
}

// acquireRedis waits until there is no key, and sets one that expires.
func acquireRedis(ctx context.Context, client *redis.Client, key, label string, ttl time.Duration) (redisHeld, error) {
	h := redisHeld{client: client, key: key, value: ownerValue(label)}
	err := poll(ctx, func(ctx context.Context) (bool, error) { return client.SetNX(ctx, key, h.value, ttl).Result() })
	return h, err
}

// Release deletes the key, unless another holder has it by now.
func (h redisHeld) Release(ctx context.Context) error {
	return deleteOwn.Run(ctx, h.client, []string{h.key}, h.value).Err()
}

var redisSetnx = control.Control{
	Name:   "redis-setnx",
	Title:  "Redis SET NX PX, deleted unconditionally",
	Recipe: "Sets a key that expires, works, and deletes the key.",
	Flaw:   "The holder is paused past the expiry, writes beside its successor, and deletes the successor's key, so that a third gets the lock.",
	Serve:  serve(1),
	Open: func(_ context.Context, s control.Servers, label string) (control.Lock, error) {
		return &setnx{newRedis(s.Service[0]), label, s.TTL}, nil
	},
}

type setnx struct {
	client *redis.Client
	label  string
	ttl    time.Duration
}

func (l *setnx) Acquire(ctx context.Context, resource string) (control.Held, error) {
	key := control.KeyPrefix("redis-setnx") + resource
	err := poll(ctx, func(ctx context.Context) (bool, error) { return l.client.SetNX(ctx, key, l.label, l.ttl).Result() })
	if err != nil {
		return nil, err
	}
	return unownedKey{client: l.client, key: key}, nil
}

func (l *setnx) Close(context.Context) error { return l.client.Close() }

// unownedKey is a key whose value is never compared.
type unownedKey struct {
	control.Unchecked
	client *redis.Client
	key    string
}

// Release deletes the key, even if another holder has it by now.
func (h unownedKey) Release(ctx context.Context) error { return h.client.Del(ctx, h.key).Err() }

var redisWatchdog = control.Control{
	Name:   "redis-watchdog",
	Title:  "Redis SET NX PX with a watchdog",
	Recipe: "Sets a key that expires with a unique value, extends it in the background, and deletes it if it is still its own.",
	Flaw:   "The holder is paused with its watchdog, or can't reach Redis, for longer than the expiry, and then writes beside its successor.",
	Serve:  serve(1),
	Open: func(_ context.Context, s control.Servers, label string) (control.Lock, error) {
		return &watched{newRedis(s.Service[0]), label, s.TTL}, nil
	},
}

type watched struct {
	client *redis.Client
	label  string
	ttl    time.Duration
}

func (l *watched) Acquire(ctx context.Context, resource string) (control.Held, error) {
	key, err := acquireRedis(ctx, l.client, control.KeyPrefix("redis-watchdog")+resource, l.label, l.ttl)
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

var redlock = control.Control{
	Name:   "redlock",
	Title:  "Redlock of five nodes",
	Recipe: "Locks redsync's Mutex: a key that expires on at least three of five Redis servers.",
	Flaw:   "A server that granted the lock restarts empty, and is a majority with two others that had not; or the holder is paused past the expiry.",
	Serve:  serve(5),
	Open: func(_ context.Context, s control.Servers, _ string) (control.Lock, error) {
		l := &majority{ttl: s.TTL}
		var pools []nodes.Pool
		for _, addr := range s.Service {
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

func (l *majority) Acquire(ctx context.Context, resource string) (control.Held, error) {
	m := l.redsync.NewMutex(control.KeyPrefix("redlock")+resource, redsync.WithExpiry(l.ttl), redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return majorityHeld{mutex: m}, nil
}

func (l *majority) Close(context.Context) error {
	var errs []error
	for _, client := range l.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

type majorityHeld struct {
	control.Unchecked
	mutex *redsync.Mutex
}

// Release fails if no majority still had the key.
func (h majorityHeld) Release(ctx context.Context) error {
	_, err := h.mutex.UnlockContext(ctx)
	return err
}

// newNode is a client of one of several servers: it doesn't retry, so that a server that is
// down doesn't delay the others.
func newNode(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
}
