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
	// up at once when another process waits. What expires together is released a few at
	// a time, and can be used until then. Negative: after every call.
	KeepFor time.Duration
	// MaxHold is for how long calls that are queued here may go on once another
	// process waits for the resource; default 100 ms. A call that has begun is
	// never interrupted for it.
	MaxHold time.Duration
	// MaxRun bounds one run of a function. After that its context ends with the
	// cause [context.DeadlineExceeded] and a text that says so, and the resource is released, so that one that hangs, while
	// the rest of its process is well and renews the lease, doesn't keep others out.
	// Whether it may still commit is for the fence to decide. In a Hold it bounds
	// all of it. Under grants and leases of the caller's it bounds each transaction, and releases nothing. Default: no bound.
	MaxRun time.Duration
	// StoreTimeout bounds the wait for the database before a function runs: for a
	// connection, the claim and BEGIN. A holder that can't reach the database gives
	// up after it, with ErrStoreUnavailable, rather than keep others from trying; default
	// 15 s.
	StoreTimeout time.Duration
	// CommitTimeout bounds one COMMIT, which the end of the caller's context
	// doesn't interrupt; default 10 s.
	CommitTimeout time.Duration
	// ResolveTimeout is for how long a call goes on asking whether a COMMIT took
	// effect whose reply was lost, also beyond the end of its context; default
	// 10 s.
	ResolveTimeout time.Duration
	// Observer is told what happens; default nobody.
	Observer *Observer
	// Logger gets what an operator should know; default nothing is logged. As with
	// the Observer, a Handler that panics or ends its goroutine changes nothing for
	// the operation; it is reported on standard error.
	Logger *slog.Logger
}

const (
	defaultKeepFor        = 10 * time.Second
	defaultMaxHold        = 100 * time.Millisecond
	defaultStoreTimeout   = 15 * time.Second
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
	fill(&filled.StoreTimeout, defaultStoreTimeout)
	fill(&filled.CommitTimeout, defaultCommitTimeout)
	fill(&filled.ResolveTimeout, defaultResolveTimeout)
	return filled
}

func (c Config) validate() error {
	for name, d := range map[string]time.Duration{
		"MaxHold": c.MaxHold, "MaxRun": c.MaxRun, "StoreTimeout": c.StoreTimeout, "CommitTimeout": c.CommitTimeout, "ResolveTimeout": c.ResolveTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("%w: Config.%s is %v, want a positive duration or 0 for the default", ErrInvalid, name, d)
		}
	}
	return nil
}
