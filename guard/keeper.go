package guard

import (
	"context"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// keeper is the part of a Guard that doesn't depend on the type of transaction. It has a line for
// each resource in use: the calls that wait for it in this process, and its ownership.
type keeper struct {
	locker fence.Locker
	cfg    Config
	report *reporter

	began      time.Time
	closing    context.Context // ends when Close begins
	beginClose context.CancelCauseFunc
	contexts   runningContexts
	done       chan struct{} // closed when, after Close, all calls have ended and all is released

	mu          sync.Mutex
	closed      bool
	lines       map[string]*line                // by resource: those with a call or an ownership
	superseding map[string]*fence.Grant         // by resource: see noteSuperseding
	doubts      map[string]*UnknownOutcomeError // by resource: left under grants of callers: see leaveDoubt
	seen        seenFences
	idle        idleOwnerships
	pending     int     // how many releases, and calls under callers' grants, are under way
	unreleased  []error // of releases that failed since Close began
}

func newKeeper(locker fence.Locker, cfg Config) *keeper {
	k := &keeper{
		locker: locker, cfg: cfg, report: newReporter(cfg.Observers, cfg.Logger), began: time.Now(),
		done: make(chan struct{}), lines: map[string]*line{}, superseding: map[string]*fence.Grant{}, doubts: map[string]*UnknownOutcomeError{},
		seen: seenFences{byResource: map[string]*seenFence{}},
	}
	k.closing, k.beginClose = context.WithCancelCause(context.Background())
	return k
}
