package redislock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
	"github.com/fencekit/fencekit/internal/callback"
)

// Config configures a Locker. The zero value, and nil, mean the defaults.
type Config struct {
	// Prefix begins all keys, and has no brace. Only Lockers with the same one exclude each other. Default: fencekit.
	Prefix string
	// TTL is how long a lock outlives its holder's last renewal, from a second to an hour. Default: 10 s.
	TTL time.Duration
	// PollInterval is how often a waiting call tries again, and how often a holder looks whether another process
	// waits: from 1 ms to a tenth of TTL. Default: 100 ms, or a tenth of TTL if that is less.
	PollInterval time.Duration
	// Epoch is that of all grants. Default: 1.
	Epoch int64
	// Label begins the holder of every grant. Default: host and process id.
	Label string
	// Logger is for what Check warns of. Default: no log.
	Logger *slog.Logger
}

type engine = keylock.Locker

// Locker is a fence.Locker, fence.Elector, fence.Raiser and fence.EpochKeeper on Redis, for fencekit.Config.Locker. It is
// safe for concurrent use, and closed by Close.
type Locker struct {
	*engine
	client  redis.UniversalClient
	log     *slog.Logger
	checked atomic.Bool
}

// New returns a Locker on client, which it never closes. It makes no request. A nil cfg means the defaults; cfg is
// copied. A nil client and a bad cfg are fence.ErrInvalid.
func New(client redis.UniversalClient, cfg *Config) (*Locker, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: redislock.New needs a client", fence.ErrInvalid)
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		return nil, fmt.Errorf("%w: redislock.Config.Prefix is %q, want none with a brace", fence.ErrInvalid, c.Prefix)
	}
	l, err := keylock.New(service{client, cmp.Or(c.Prefix, "fencekit")}, keylock.Config{
		Name: "redislock", TTL: c.TTL, PollInterval: c.PollInterval, Epoch: c.Epoch, Label: c.Label,
	})
	if err != nil {
		return nil, err
	}
	return &Locker{engine: l, client: client, log: callback.Logger(c.Logger)}, nil
}

// Check reports whether Redis grants locks now, for start-up and readiness probes: it acquires and releases one of its
// own. In a cluster that asks one server. The first that succeeds warns of a maxmemory-policy that evicts.
func (l *Locker) Check(ctx context.Context) error {
	if err := l.engine.Check(ctx); err != nil || l.checked.Swap(true) {
		return err
	}
	info, err := l.client.Info(ctx, "memory").Result()
	if _, policy, ok := strings.Cut(info, "maxmemory_policy:"); err == nil && ok && !strings.HasPrefix(policy, "noeviction") {
		policy, _, _ = strings.Cut(policy, "\r")
		l.log.WarnContext(ctx, "redislock: when its memory is used up Redis evicts locks and counters of tokens: two processes then own a resource, "+
			"the fence rejects one of them, and that call has to run again. Give locks a Redis with maxmemory-policy noeviction", "maxmemory-policy", policy)
	}
	return nil
}
