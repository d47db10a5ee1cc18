package guard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// runContext is a context that the Guard ends: that of a function and of the steps in the store
// that precede it, or that of a claim. One value does what would otherwise take a chain of a dozen
// contexts and their hooks for each call, most of which are never used.
type runContext struct {
	context.Context // can be cancelled
	end             context.CancelCauseFunc

	// What a function runs under; zero for a step in the store.
	guard  any // the Guard, which is the key under which it finds the context
	hold   any // the Runner of the Hold that runs the function; nil if a transaction runs it
	grants []fence.Grant

	// From bind to unbind:
	held  []*held       // the loss of whose leases ends it
	stops []func() bool // undo the hooks that end it

	contexts *runningContexts // that it was added to
}

// newRunContext returns a context that ends with ctx, or when its method end is called.
func newRunContext(ctx context.Context) *runContext {
	c := &runContext{}
	c.Context, c.end = context.WithCancelCause(ctx)
	return c
}

// Value returns c itself for the keys of nested and Grants.
func (c *runContext) Value(key any) any {
	if c.guard != nil && (key == c.guard || key == grantsKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Err returns DeadlineExceeded if a timeout has ended c.
func (c *runContext) Err() error {
	err := c.Context.Err()
	if err != nil {
		if _, ok := context.Cause(c.Context).(*timeoutError); ok {
			return context.DeadlineExceeded
		}
	}
	return err
}

// bounds say what ends the context of a function, besides the end of its caller's context
// and Close.
type bounds struct {
	held   []*held         // the loss of one of their leases
	leases []fence.Lease   // the end of one of these, which are the caller's
	hold   context.Context // the end of this context, of the Hold in which the function's transaction runs; or nil
	limit  time.Duration   // Config.MaxRun, after which what is held is released; 0 for no bound
}

// bind makes c, the context of a function that begins now, end within b. The caller calls
// unbind when the function has returned.
func (c *runContext) bind(b bounds, report *reporter) {
	c.held = b.held
	for _, h := range b.held {
		h.OnEnd(c.end)
	}
	for _, l := range b.leases {
		c.endWith(l.Context())
	}
	if b.hold != nil {
		c.endWith(b.hold)
	}
	if b.limit > 0 {
		c.stops = append(c.stops, c.limit(b, report))
	}
}

// endWith makes c end when other does, with its cause.
func (c *runContext) endWith(other context.Context) {
	c.stops = append(c.stops, context.AfterFunc(other, func() { c.end(context.Cause(other)) }))
}

// limit ends c, and releases what is held, when b.limit has passed.
func (c *runContext) limit(b bounds, report *reporter) (stop func() bool) {
	overran := make(chan struct{})
	timer := time.AfterFunc(b.limit, func() {
		defer close(overran)
		c.end(fmt.Errorf("guard: function ran for too long (Config.MaxRun is %v): %w", b.limit, context.DeadlineExceeded))
		for _, h := range b.held {
			for _, s := range h.Values {
				report.overran(s.claim.Grant, b.limit)
			}
			h.ReleaseEarly() // mutant: hanging-functions-keep-the-lock
		}
	})
	return func() bool {
		stopped := timer.Stop()
		if !stopped {
			<-overran // the next call must not use what is being released
		}
		return stopped
	}
}

// unbind undoes bind, and ends c with cause. It may be called again.
func (c *runContext) unbind(cause error) {
	for _, h := range c.held {
		h.OnEnd(nil)
	}
	for _, stop := range c.stops {
		stop()
	}
	c.held, c.stops = nil, nil
	c.end(cause)
}

// finish ends c with cause. It may be called again.
func (c *runContext) finish(cause error) {
	c.unbind(cause)
	c.contexts.remove(c)
}

// runningContexts are the contexts that end when Close gives up waiting.
type runningContexts struct {
	mu      sync.Mutex
	cause   error // of their end; nil as long as Close waits
	running map[*runContext]struct{}
}

// add makes c end when Close gives up waiting. The caller calls c's method finish.
func (r *runningContexts) add(c *runContext) {
	c.contexts = r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		c.end(r.cause)
	}
	if r.running == nil {
		r.running = map[*runContext]struct{}{}
	}
	r.running[c] = struct{}{}
}

// remove takes c out of r, if it is in it.
func (r *runningContexts) remove(c *runContext) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, c)
}

// endAll ends all contexts with cause, and those that begin later.
func (r *runningContexts) endAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		return
	}
	r.cause = cause
	for c := range r.running {
		c.end(cause)
	}
}

// timeouts bound steps in the store. They reuse their timers, since hardly one ever fires.
type timeouts struct {
	after time.Duration
	cause *timeoutError
	idle  sync.Pool // of *timeout
}

// timeout is a timer that ends a context.
type timeout struct {
	timer *time.Timer
	ends  atomic.Pointer[runContext]
}

func newTimeouts(after time.Duration) *timeouts {
	return &timeouts{after: after, cause: &timeoutError{fmt.Errorf("%w: no answer in time (Config.StoreTimeout is %v)", ErrStoreUnavailable, after)}}
}

// timeoutError is the cause of the end of a context that a timeout has ended.
type timeoutError struct{ error }

func (e *timeoutError) Unwrap() error { return e.error }

// start makes c end after t.after. The caller calls stop.
func (t *timeouts) start(c *runContext) *timeout {
	if used, ok := t.idle.Get().(*timeout); ok {
		used.ends.Store(c)
		used.timer.Reset(t.after)
		return used
	}
	fresh := &timeout{}
	fresh.ends.Store(c)
	fresh.timer = time.AfterFunc(t.after, func() { fresh.ends.Load().end(t.cause) })
	return fresh
}

// stop stops a timeout. One that has fired isn't reused: it may still be about to end its context.
func (t *timeouts) stop(started *timeout) {
	if started.timer.Stop() {
		started.ends.Store(nil)
		t.idle.Put(started)
	}
}

// grantsKey is the key under which a function's context has its grants.
type grantsKey struct{}

// Grants returns the grants that a function of [Do], [Value], [Exec] or [Hold] runs
// under, in order of their resources' names. ctx is the function's own context; for any
// other one Grants returns nil. A function uses it to send its grants along with requests.
func Grants(ctx context.Context) []fence.Grant {
	if run, ok := ctx.Value(grantsKey{}).(*runContext); ok {
		return slices.Clone(run.grants)
	}
	return nil
}

// nestedError is why the function whose context c is can't make a call for resources.
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

// uncovered returns the first of resources without a grant; "" if each has one.
func uncovered(resources []string, grants []fence.Grant) (missing string) {
	for _, resource := range resources {
		if !slices.ContainsFunc(grants, func(g fence.Grant) bool { return g.Resource == resource }) {
			return resource
		}
	}
	return ""
}
