package guard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// runContext is the context of a function and of the steps before it, or of a claim. It replaces the chain of
// contexts and hooks that each call would need.
type runContext struct {
	context.Context
	end context.CancelCauseFunc
	links[*runContext]

	locks  *localLocks // also the key for c among a context's values
	grants []fence.Grant
	hold   any // Runner of the Hold, in the function of a Hold

	bound       atomic.Bool     // from bind to finish; what follows is as bind left it
	holdContext context.Context // of the Hold, or nil
	states      grantStates     // whose leases end c
	oneState    [1]*grantState  // memory for a single one
	stops       []func() bool

	// What a call for one resource hands to the store. No two runs share it: the store, or a doubt, may keep it.
	oneClaim [1]storage.Claim
	oneMove  [1]storage.Move
	oneOp    [1]storage.OpRecord
}

// newContext returns a context that ends with ctx, or when Close gives up waiting. Call finish on it.
func (ls *localLocks) newContext(ctx context.Context, grants []fence.Grant) *runContext {
	c := &runContext{locks: ls, grants: grants}
	c.Context, c.end = context.WithCancelCause(ctx)
	ls.mu.Lock()
	ls.running.insert(&c.links, c, nil)
	abandoned := ls.abandoned
	ls.mu.Unlock()
	if abandoned {
		c.end(ErrClosed)
	}
	return c
}

func (c *runContext) Value(key any) any {
	if key == c.locks || key == (grantsKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func (c *runContext) Done() <-chan struct{} {
	c.checkLeases()
	return c.Context.Done()
}

func (c *runContext) Err() error {
	c.checkLeases()
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == c.locks.timeoutError {
		return context.DeadlineExceeded
	}
	return err
}

// checkLeases ends c if a lease is over whose loss has yet to be told, or was before bind. It takes no lock once c has ended.
func (c *runContext) checkLeases() {
	if !c.bound.Load() || c.Context.Err() != nil {
		return
	}
	if c.holdContext != nil && c.holdContext.Err() != nil {
		c.end(context.Cause(c.holdContext))
	}
	for _, s := range c.states {
		if s.lease == nil {
			continue
		}
		if err := s.lease.Err(); err != nil {
			c.end(err) // mutant: functions-begin-under-a-lost-lease
		}
	}
}

type bounds struct {
	hold  context.Context // of the Hold that the transaction is in; or nil
	limit time.Duration
}

func (c *runContext) bind(states grantStates, b bounds) {
	if b.hold != nil {
		states = nil // the Hold's context is bound to them; mutant: a-transaction-takes-the-lease-from-its-hold
		c.holdContext = b.hold
		c.endWith(b.hold)
	}
	c.states = append(c.oneState[:0], states...)
	for _, s := range states {
		switch {
		case s.lock != nil:
			s.running.Store(c)
		case s.lease != nil:
			c.endWith(s.lease.Context())
		}
	}
	if b.limit > 0 {
		c.stops = append(c.stops, c.endAfter(b.limit))
	}
	c.bound.Store(true)
	c.checkLeases()
}

func (c *runContext) endWith(other context.Context) {
	c.stops = append(c.stops, context.AfterFunc(other, func() { c.end(context.Cause(other)) }))
}

func (c *runContext) endAfter(limit time.Duration) (stop func() bool) {
	states := c.states
	overrun := sync.OnceFunc(func() {
		c.end(fmt.Errorf("guard: function ran for too long (Config.MaxRun is %v): %w", limit, context.DeadlineExceeded))
		for _, s := range states {
			if s.lock != nil {
				c.locks.report.overran(s.claim.Grant, limit)
				c.locks.releaseEarly(s) // mutant: hanging-functions-keep-the-lock
			}
		}
	})
	timer := time.AfterFunc(limit, overrun)
	return func() bool {
		stopped := timer.Stop()
		if !stopped {
			overrun() // and wait: the next call must not use what it releases
		}
		return stopped
	}
}

func (c *runContext) finish(cause error) {
	if c.bound.Swap(false) {
		for _, s := range c.states {
			s.running.Store(nil)
		}
	}
	for _, stop := range c.stops {
		stop()
	}
	c.stops = nil
	c.locks.mu.Lock()
	if c.listed() {
		c.locks.running.remove(&c.links)
	}
	c.locks.mu.Unlock()
	c.end(cause)
}

type grantsKey struct{}

// Grants returns the grants that a function of [Do], [Value], [Exec] or [Hold] runs under, in order of their
// resources' names, for instance to send them along with requests. It needs the function's own ctx; for any other
// it returns nil, and for an operation of [ReadOnly] without a lock.
//
// Of an operation that claims in its own transaction the grant is gone if that isn't committed, and after a crash of
// the database the same token may be issued again. To send grants away, use a [Hold].
func Grants(ctx context.Context) []fence.Grant {
	if run, ok := ctx.Value(grantsKey{}).(*runContext); ok && len(run.grants) > 0 && run.grants[0].Token > 0 {
		return slices.Clone(run.grants)
	}
	return nil
}

func (c *runContext) nestedError(resources []string) error {
	held := names(c.grants)
	missing := uncovered(resources, c.grants)
	switch {
	case missing != "" && c.hold != nil:
		return fmt.Errorf("%w: nested call: the function is that of a Hold of %s: name %s beside it in one Hold, and use the Hold's Runner", ErrInvalid, held, missing)
	case missing != "":
		return fmt.Errorf("%w: nested call: the function runs under %s: name %s beside it in one call", ErrInvalid, held, missing)
	case c.hold != nil:
		return fmt.Errorf("%w: nested call: the function is that of a Hold of %s: use the Hold's Runner", ErrInvalid, held)
	}
	return fmt.Errorf("%w: nested call: the function runs under %s: use the function's own transaction", ErrInvalid, held)
}

func uncovered(resources []string, grants []fence.Grant) (missing string) {
	for _, resource := range resources {
		if !slices.ContainsFunc(grants, func(g fence.Grant) bool { return g.Resource == resource }) {
			return resource
		}
	}
	return ""
}
