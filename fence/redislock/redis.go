package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// The value of a lock is PROCESS \n HOLDER \n TOKEN \n VALUE; neither of the first two has a control character.

// acquireScript returns the token, or "" and the holder. Asked again after a lost answer, it returns the same token.
// A call that waits for another process's lock says so.
const acquireScript = `
local value = redis.call('get', KEYS[1])
local own = ARGV[1] .. '\n' .. ARGV[2] .. '\n'
if value and string.sub(value, 1, #own) == own then
	redis.call('pexpire', KEYS[1], ARGV[3])
	return {string.match(value, '^%d+', #own + 1), ''}
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
redis.call('set', KEYS[1], own .. token .. '\n' .. ARGV[5], 'px', ARGV[3])
redis.call('del', KEYS[3])
return {token, ''}`

// renewScript returns whether the holder still has the lock, under the same token: a late request may have taken it anew.
const renewScript = `
local value = redis.call('get', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
	redis.call('set', KEYS[1], ARGV[1] .. ARGV[3], 'px', ARGV[2])
	return 1
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
func (s service) keys(resource string) (lock, token, waits string) {
	of := s.prefix + "{:" + resource + "}:"
	return of + "lock", of + "token", of + "waits"
}

// eval sends a script. Its text is short, and a Redis that restarts forgets loaded ones.
func (s service) eval(ctx context.Context, script string, keys []string, args ...any) (any, error) {
	return s.client.Eval(ctx, script, keys, args...).Result()
}

// evalOwn sends a script that does something only if the key is the holder's, and has token if that is given, and reports
// whether it was.
func (s service) evalOwn(ctx context.Context, script string, r keylock.Request, token string, args ...any) (bool, error) {
	lock, _, _ := s.keys(r.Resource)
	answer, err := s.eval(ctx, script, []string{lock}, append([]any{r.Process + "\n" + r.Holder + "\n" + token}, args...)...)
	return answer == int64(1), err
}

// service is the keylock.Service.
type service struct {
	client redis.UniversalClient
	prefix string
}

func (s service) Acquire(ctx context.Context, r keylock.Request) (fence.Token, error) {
	lock, count, waits := s.keys(r.Resource)
	return s.acquire(ctx, r, lock, count, waits)
}

func (s service) acquire(ctx context.Context, r keylock.Request, keys ...string) (fence.Token, error) {
	answer, err := s.eval(ctx, acquireScript, keys, r.Process, r.Holder, r.TTL.Milliseconds(), r.Mark.Milliseconds(), r.Value)
	if err != nil {
		return 0, err
	}
	got := answer.([]any)
	if got[0] == "" {
		return 0, &fence.LockedError{Resource: r.Resource, Holder: got[1].(string)}
	}
	token, err := strconv.ParseInt(got[0].(string), 10, 64)
	return fence.Token(token), err
}

func (s service) Renew(ctx context.Context, r keylock.Request, token fence.Token) (bool, error) {
	return s.evalOwn(ctx, renewScript, r, token.String()+"\n", r.TTL.Milliseconds(), r.Value)
}

func (s service) Release(ctx context.Context, r keylock.Request) error {
	_, err := s.evalOwn(ctx, releaseScript, r, "")
	return err
}

func (s service) Raise(ctx context.Context, resource string, above fence.Token) error {
	_, token, _ := s.keys(resource)
	_, err := s.eval(ctx, raiseScript, []string{token}, above.String())
	return err
}

func (s service) Contended(ctx context.Context, of []keylock.Request) ([]bool, error) {
	answers, _ := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, r := range of {
			_, _, waits := s.keys(r.Resource)
			p.Exists(ctx, waits)
		}
		return nil
	})
	waits := make([]bool, len(answers))
	for i, answer := range answers { // a key or a shard may have an error of its own
		waits[i] = answer.(*redis.IntCmd).Val() == 1
	}
	return waits, nil
}

const rights = "give the client's user the keys PREFIX{* and the commands eval, get, set, incr, del, pexpire and exists"

// refusals are Redis's answers, by how they begin, to a request that it doesn't serve.
var refusals = map[string]struct {
	reason    fence.UnavailableReason
	temporary bool
	text      string
}{
	"ERR Protocol error: unauthenticated": {fence.Denied, false, "give the client a user and password"}, // its first request is too long for one without
	"NOAUTH":                              {fence.Denied, false, "give the client a user and password"},
	"WRONGPASS":                           {fence.Denied, false, "correct the client's user and password"},
	"NOPERM":                              {fence.Denied, false, rights},
	"ERR The user executing the script":   {fence.Denied, false, rights},
	"OOM":                                 {fence.NoSpace, false, "raise maxmemory: with this maxmemory-policy nothing can be evicted"},
	"MISCONF":                             {fence.NoSpace, false, "mend what keeps Redis from saving, as its log says, often a full disk; or set stop-writes-on-bgsave-error to no"},
	"READONLY":                            {fence.Unreachable, true, "the server is a replica: connect to the primary, as with redis.NewFailoverClient"},
	"MASTERDOWN":                          {fence.Unreachable, true, "the server is a replica without its primary: connect to the primary, as with redis.NewFailoverClient"},
	"NOREPLICAS":                          {fence.Unreachable, true, "fewer replicas follow than min-replicas-to-write wants"},
	"LOADING":                             {fence.Unreachable, true, "the server is starting, or copies its primary"},
	"BUSY":                                {fence.Unreachable, true, "a script of another client runs: see script kill"},
	"CLUSTERDOWN":                         {fence.Unreachable, true, "a part of the cluster has no primary: see cluster info"},
	"TRYAGAIN":                            {fence.Unreachable, true, "the cluster moves the keys to another server"},
	"ERR max number of clients reached":   {fence.Unreachable, true, "raise maxclients, or connect fewer clients"},
}

func (s service) Look(ctx context.Context, resource string) (keylock.Owner, error) {
	lock, _, _ := s.keys(resource)
	return look(ctx, s.client, resource, lock)
}

func look(ctx context.Context, c redis.Cmdable, resource, lock string) (none keylock.Owner, err error) {
	value, err := c.Get(ctx, lock).Result()
	of := strings.SplitN(value, "\n", 4)
	if errors.Is(err, redis.Nil) || err == nil && len(of) != 4 {
		return none, nil
	} else if err != nil {
		return none, err
	}
	left, err := c.PTTL(ctx, lock).Result()
	if err != nil {
		return none, err
	}
	token, err := strconv.ParseInt(of[2], 10, 64)
	return keylock.Owner{Resource: resource, Process: of[0], Holder: of[1], Value: of[3], Token: fence.Token(token), Left: left}, err
}

// List looks at one server after another, since each of a cluster has other keys.
func (s service) List(ctx context.Context) (owners []keylock.Owner, err error) {
	before, after := s.prefix+"{:", "}:lock"
	list := func(ctx context.Context, c redis.Cmdable) error {
		keys := c.Scan(ctx, 0, glob.Replace(before)+"*"+after, 1000).Iterator()
		for keys.Next(ctx) {
			o, err := look(ctx, c, strings.TrimSuffix(strings.TrimPrefix(keys.Val(), before), after), keys.Val())
			if err != nil {
				return err
			}
			if o.Holder != "" {
				owners = append(owners, o)
			}
		}
		return keys.Err()
	}
	if cluster, is := s.client.(*redis.ClusterClient); is {
		var mu sync.Mutex
		return owners, cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return list(ctx, c)
		})
	}
	return owners, list(ctx, s.client)
}

var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// Check has one key for the count and for who waits, which the script deletes.
func (s service) Check(ctx context.Context, r keylock.Request) error {
	lock, count, _ := s.keys(r.Resource)
	if _, err := s.acquire(ctx, r, lock, count, count); err != nil {
		return err
	}
	return s.Release(ctx, r)
}

func (service) Explain(err error) (fence.UnavailableReason, error) {
	var answered redis.Error
	if !errors.As(err, &answered) {
		return fence.Unreachable, err
	}
	for begin, r := range refusals {
		// Redis 6 puts the answer to a script's command behind what it says of the script.
		if text := err.Error(); strings.HasPrefix(text, begin+" ") || strings.Contains(text, ": -"+begin+" ") {
			return r.reason, &keylock.Refusal{Remedy: "redislock: " + r.text, Temporary: r.temporary, Err: err}
		}
	}
	return "", err
}
