package keylock

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// Config is what the Configs of all services have in common; see theirs for the meaning. Zero means the default.
type Config struct {
	Name         string // of the service's package
	TTL          time.Duration
	PollInterval time.Duration
	Epoch        int64
	Label        string

	RequestTimeout time.Duration // set by tests
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	c.PollInterval = cmp.Or(c.PollInterval, min(100*time.Millisecond, c.TTL/10))
	c.Epoch = cmp.Or(c.Epoch, 1)
	c.Label = cmp.Or(c.Label, session.DefaultLabel())
	c.RequestTimeout = cmp.Or(c.RequestTimeout, min(5*time.Second, c.TTL))
	return c
}

func (c Config) validate() error {
	switch {
	case c.TTL < time.Second || c.TTL > time.Hour:
		return fmt.Errorf("%w: %s.Config.TTL is %v, want between 1s and 1h", fence.ErrInvalid, c.Name, c.TTL)
	case c.PollInterval < time.Millisecond || c.PollInterval > c.TTL/10:
		return fmt.Errorf("%w: %s.Config.PollInterval is %v, want between 1ms and a tenth of TTL", fence.ErrInvalid, c.Name, c.PollInterval)
	}
	probe := fence.Grant{Resource: "r", Epoch: c.Epoch, Token: 1, Holder: session.NewHolder(c.Label)}
	if err := probe.Validate(); err != nil {
		return fmt.Errorf("%s.Config: %w", c.Name, err)
	}
	return nil
}
