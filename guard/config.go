package guard

import (
	"fmt"
	"log/slog"
	"time"
)

// Config configures a Guard. A nil *Config, and every zero field, means the
// default.
type Config struct {
	// KeepFor is how long a resource stays owned after the last call, so that the next
	// call needs no lock service; default 10 s. When another process waits, the resource is
	// released at once. Resources that expire together are released a few at a time, and can
	// be used until then. A negative value releases after every call.
	KeepFor time.Duration
	// MaxHold is how long calls that wait in this process may still begin after another
	// process has begun to wait for the resource; default 100 ms. It never interrupts a call
	// that has begun.
	MaxHold time.Duration
	// MaxRun bounds one run of a function; default no bound. When it has passed, the
	// function's context ends with [context.DeadlineExceeded] as its cause, and the resource
	// is released. So a function that hangs doesn't keep others from the resource while its
	// process goes on renewing the lease. The fence decides whether it may still commit.
	// MaxRun bounds a whole Hold. Under grants and leases of the caller's it bounds each
	// transaction, and nothing is released.
	MaxRun time.Duration
	// StoreTimeout bounds each wait for the database before a function runs: for a
	// connection, the claim and what Once has kept; default 15 s. A holder that can't reach
	// the database fails then with ErrStoreUnavailable, and lets others try.
	StoreTimeout time.Duration
	// CommitTimeout bounds one COMMIT, which the end of the caller's context
	// doesn't interrupt; default 10 s. With a postgres.Batch that includes its statements.
	CommitTimeout time.Duration
	// ResolveTimeout bounds how long a call asks whether a COMMIT whose reply was lost took
	// effect, also beyond the end of its context; default 10 s.
	ResolveTimeout time.Duration
	// Observers are called, in this order, when something happens; default none. A nil one
	// is skipped.
	Observers []*Observer
	// ProfileLabels gives the functions of Do, Value and Hold, and goroutines that they start,
	// the pprof label resource_class: the class of the call's first resource by name, which is the
	// part of its name before the first slash. The first 100 classes are told apart; the rest is
	// "other". After a function its goroutine has the labels of the caller's context again, as
	// after [pprof.Do]. Default: off.
	ProfileLabels bool
	// Logger gets what an operator should know; default nothing is logged. If its Handler
	// panics or ends its goroutine, that is reported on standard error, and the operation
	// goes on.
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
