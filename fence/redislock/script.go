package redislock

import (
	"context"
	"errors"
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

func unavailable(op string, err error) error {
	away := &fence.UnavailableError{Op: op, Err: err}
	text := err.Error()
	var answered redis.Error
	switch {
	case strings.HasPrefix(text, "OOM"):
		away.Reason = fence.NoSpace
	case strings.HasPrefix(text, "NOAUTH"), strings.HasPrefix(text, "NOPERM"), strings.HasPrefix(text, "WRONGPASS"):
		away.Reason = fence.Denied
	case !errors.As(err, &answered):
		away.Reason = fence.Unreachable
	}
	return away
}
