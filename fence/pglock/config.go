package pglock

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
	"github.com/fencekit/fencekit/internal/callback"
)

// Config configures a Locker. The zero value, and nil, mean the defaults.
type Config struct {
	// Schema holds the tables: postgres.Config.Schema. Only Lockers with the same Schema exclude each other. Default:
	// fence.
	Schema string

	// TTL is how long a lock outlives its holder's last renewal, from a second to an hour. It bounds each request,
	// which may take at most 5 s. Default: 10 s.
	TTL time.Duration

	// Label begins the holder of every grant. Default: host and process id.
	Label string

	// Logger logs lost sessions and background errors. A panic of its Handler goes to standard error. Default: no
	// log.
	Logger *slog.Logger

	requestTimeout, poll time.Duration // set by tests
}

// Without a notification a waiting call looks this often; where none can arrive, as behind a pooler, that often.
const (
	pollInterval     = time.Second
	pollOnlyInterval = 100 * time.Millisecond
)

func (c *Config) withDefaults() Config {
	var cfg Config
	if c != nil {
		cfg = *c
	}
	cfg.Schema = cmp.Or(cfg.Schema, "fence")
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.Label = cmp.Or(cfg.Label, session.DefaultLabel())
	cfg.requestTimeout = cmp.Or(cfg.requestTimeout, min(5*time.Second, cfg.TTL))
	cfg.poll = cmp.Or(cfg.poll, pollInterval)
	cfg.Logger = callback.Logger(cfg.Logger)
	return cfg
}

func (c Config) validate() error {
	if c.TTL < time.Second || c.TTL > time.Hour {
		return fmt.Errorf("%w: pglock.Config.TTL is %v, want between 1s and 1h", fence.ErrInvalid, c.TTL)
	}
	probe := fence.Grant{Resource: "r", Epoch: 1, Token: 1, Holder: session.NewHolder(c.Label)}
	if err := probe.Validate(); err != nil {
		return fmt.Errorf("%w: pglock.Config.Label makes no valid holder: %v", fence.ErrInvalid, err)
	}
	return nil
}
