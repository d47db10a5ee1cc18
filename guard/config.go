package guard

import (
	"fmt"
	"log/slog"
	"time"
)

// Config configures a Guard. A nil *Config, and every zero field, means the
// default.
type Config struct {
	// KeepFor is how long the ownership of a resource is kept after the last
	// call, so that the next one needs no lock service; default 10 s. It is given
	// up at once when another process waits. Negative: after every call.
	KeepFor time.Duration
	// MaxHold is for how long calls that are queued here may go on once another
	// process waits for the resource; default 100 ms. A call that has begun is
	// never interrupted for it.
	MaxHold time.Duration
	// CommitTimeout bounds one COMMIT, which the end of the caller's context
	// doesn't interrupt; default 10 s.
	CommitTimeout time.Duration
	// ResolveTimeout is for how long a call goes on asking whether a COMMIT took
	// effect whose reply was lost, also beyond the end of its context; default
	// 10 s.
	ResolveTimeout time.Duration
	// Observer is told what happens; default nobody.
	Observer *Observer
	// Logger gets what an operator should know; default nothing is logged.
	Logger *slog.Logger
}

const (
	defaultKeepFor        = 10 * time.Second
	defaultMaxHold        = 100 * time.Millisecond
	defaultCommitTimeout  = 10 * time.Second
	defaultResolveTimeout = 10 * time.Second
)

// withDefaults returns a copy of c with the defaults filled in.
func (c *Config) withDefaults() Config {
	var filled Config
	if c != nil {
		filled = *c
	}
	fill := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	fill(&filled.KeepFor, defaultKeepFor)
	fill(&filled.MaxHold, defaultMaxHold)
	fill(&filled.CommitTimeout, defaultCommitTimeout)
	fill(&filled.ResolveTimeout, defaultResolveTimeout)
	return filled
}

func (c Config) validate() error {
	for name, d := range map[string]time.Duration{
		"MaxHold": c.MaxHold, "CommitTimeout": c.CommitTimeout, "ResolveTimeout": c.ResolveTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("%w: Config.%s is %v, want a positive duration or 0 for the default", ErrInvalid, name, d)
		}
	}
	return nil
}
