package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/fence"
)

// The value of a lock is PROCESS \n HOLDER \n TOKEN; neither of the first two has a control character.

// acquireScript returns the token, or "" and the holder. Asked again after a lost answer, it returns the same token.
// A call that waits for another process's lock says so.
const acquireScript = `
local value = redis.call('get', KEYS[1])
local own = ARGV[1] .. '\n' .. ARGV[2] .. '\n'
if value and string.sub(value, 1, #own) == own then
	redis.call('pexpire', KEYS[1], ARGV[3])
	return {string.sub(value, #own + 1), ''}
end
if value then
	local process, holder = string.match(value, '^(.-)\n(.-)\n')
	if ARGV[4] ~= '0' and process ~= ARGV[1] then
		redis.call('set', KEYS[3], '', 'px', ARGV[4])
	end
	return {'', holder or ''}
end
redis.call('incr', KEYS[2])
local token = redis.call('get', KEYS[2])
redis.call('set', KEYS[1], own .. token, 'px', ARGV[3])
redis.call('del', KEYS[3])
return {token, ''}`

// renewScript returns whether the holder still has the lock.
const renewScript = `
local value = redis.call('get', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
	return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0`

const releaseScript = `
local value = redis.call('get', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
	return redis.call('del', KEYS[1])
end
return 0`

// raiseScript compares decimals as text: a number in Lua has 53 bits.
const raiseScript = `
local token = redis.call('get', KEYS[1]) or '0'
if #token < #ARGV[1] or #token == #ARGV[1] and token < ARGV[1] then
	redis.call('set', KEYS[1], ARGV[1])
end
return 1`

// keys have the resource between the braces that tell Redis Cluster where a key belongs, behind a colon: between
// empty ones it would look at the whole key.
func (l *Locker) keys(resource string) (lock, token, waits string) {
	of := l.cfg.Prefix + "{:" + resource + "}:"
	return of + "lock", of + "token", of + "waits"
}

// eval sends a script. Its text is short, and a Redis that restarts forgets loaded ones.
func (l *Locker) eval(ctx context.Context, script string, keys []string, args ...any) (any, error) {
	return within(ctx, l, func(ctx context.Context) (any, error) { return l.client.Eval(ctx, script, keys, args...).Result() })
}

// contended returns the leases for which another process waits.
func (l *Locker) contended(ctx context.Context, leases []*lease) (of []*lease) {
	answers, _ := within(ctx, l, func(ctx context.Context) ([]redis.Cmder, error) {
		return l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, le := range leases {
				_, _, waits := l.keys(le.grant.Resource)
				p.Exists(ctx, waits)
			}
			return nil
		})
	})
	for i, answer := range answers { // a key or a shard may have an error of its own
		if answer.(*redis.IntCmd).Val() == 1 {
			of = append(of, leases[i])
		}
	}
	return of
}

// within makes a request, and returns when ctx ends, or the request's time: a client does so only if it is told to.
func within[T any](ctx context.Context, l *Locker, request func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.requestTimeout)
	defer cancel()
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := request(ctx)
		done <- result{answer, err}
	}()
	select {
	case got := <-done:
		return got.answer, got.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

const rights = "give the client's user the keys PREFIX{* and the commands eval, get, set, incr, del, pexpire and exists"

// refusals are Redis's answers, by how they begin, to a request that it doesn't serve.
var refusals = map[string]struct {
	reason    fence.UnavailableReason
	temporary bool
	text      string
}{
	"NOAUTH":                            {fence.Denied, false, "give the client a user and password"},
	"WRONGPASS":                         {fence.Denied, false, "correct the client's user and password"},
	"NOPERM":                            {fence.Denied, false, rights},
	"ERR The user executing the script": {fence.Denied, false, rights},
	"OOM":                               {fence.NoSpace, false, "raise maxmemory: with this maxmemory-policy nothing can be evicted"},
	"MISCONF":                           {fence.NoSpace, false, "mend what keeps Redis from saving, as its log says, often a full disk; or set stop-writes-on-bgsave-error to no"},
	"READONLY":                          {fence.Unreachable, true, "the server is a replica: connect to the primary, as with redis.NewFailoverClient"},
	"MASTERDOWN":                        {fence.Unreachable, true, "the server is a replica without its primary: connect to the primary, as with redis.NewFailoverClient"},
	"NOREPLICAS":                        {fence.Unreachable, true, "fewer replicas follow than min-replicas-to-write wants"},
	"LOADING":                           {fence.Unreachable, true, "the server is starting, or copies its primary"},
	"BUSY":                              {fence.Unreachable, true, "a script of another client runs: see script kill"},
	"CLUSTERDOWN":                       {fence.Unreachable, true, "a part of the cluster has no primary: see cluster info"},
	"TRYAGAIN":                          {fence.Unreachable, true, "the cluster moves the keys to another server"},
	"ERR max number of clients reached": {fence.Unreachable, true, "raise maxclients, or connect fewer clients"},
}

// refusal is an error that Redis has answered.
type refusal struct {
	error
	temporary bool
}

func (e refusal) Unwrap() error { return e.error }

// Retryable tells package guard that the same call may succeed.
func (e refusal) Retryable() bool { return e.temporary }

func unavailable(op string, err error) error {
	var answered redis.Error
	if !errors.As(err, &answered) {
		return &fence.UnavailableError{Op: op, Reason: fence.Unreachable, Err: err}
	}
	for begin, r := range refusals {
		// Redis 6 puts the answer to a script's command behind what it says of the script.
		if text := err.Error(); strings.HasPrefix(text, begin+" ") || strings.Contains(text, ": -"+begin+" ") {
			return &fence.UnavailableError{Op: op, Reason: r.reason, Err: refusal{fmt.Errorf("redislock: %s: %w", r.text, err), r.temporary}}
		}
	}
	return &fence.UnavailableError{Op: op, Err: err}
}
