package redislock

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
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
	// Logger logs lost sessions and background errors. Default: no log.
	Logger *slog.Logger

	requestTimeout time.Duration // set by tests
}

func (c *Config) withDefaults() Config {
	var cfg Config
	if c != nil {
		cfg = *c
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, "fencekit")
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.PollInterval = cmp.Or(cfg.PollInterval, min(100*time.Millisecond, cfg.TTL/10))
	cfg.Epoch = cmp.Or(cfg.Epoch, 1)
	cfg.Label = cmp.Or(cfg.Label, session.DefaultLabel())
	cfg.requestTimeout = cmp.Or(cfg.requestTimeout, min(5*time.Second, cfg.TTL))
	cfg.Logger = callback.Logger(cfg.Logger)
	return cfg
}

func (c Config) validate() error {
	switch {
	case c.TTL < time.Second || c.TTL > time.Hour:
		return fmt.Errorf("%w: redislock.Config.TTL is %v, want between 1s and 1h", fence.ErrInvalid, c.TTL)
	case c.PollInterval < time.Millisecond || c.PollInterval > c.TTL/10:
		return fmt.Errorf("%w: redislock.Config.PollInterval is %v, want between 1ms and a tenth of TTL", fence.ErrInvalid, c.PollInterval)
	case strings.ContainsAny(c.Prefix, "{}"):
		return fmt.Errorf("%w: redislock.Config.Prefix is %q, want none with a brace", fence.ErrInvalid, c.Prefix)
	}
	probe := fence.Grant{Resource: "r", Epoch: c.Epoch, Token: 1, Holder: newHolder(c.Label)}
	if err := probe.Validate(); err != nil {
		return fmt.Errorf("redislock.Config: %w", err)
	}
	return nil
}
