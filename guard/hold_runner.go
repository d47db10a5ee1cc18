package guard

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// holdRunner is the Runner of a Hold.
type holdRunner[Tx any] struct {
	guard   *Guard[Tx]
	states  grantStates
	callers bool            // the grants, or leases, are the caller's
	bounds  bounds          // of each transaction
	ctx     context.Context // ends when the function that Hold runs has returned
	turn    chan struct{}   // has room while no transaction runs
	over    bool            // Hold has returned; used only with the turn
}

// runHold runs fn under states within b. If the grants are the caller's, b.limit bounds
// each transaction instead of the whole Hold.
func (g *Guard[Tx]) runHold(ctx context.Context, states grantStates, b bounds, callers bool, fn func(ctx context.Context, h Runner[Tx]) error) error {
	if err := g.readyAll(ctx, states); err != nil {
		return err
	}
	states.setInHold(true)
	defer states.setInHold(false)
	h := &holdRunner[Tx]{guard: g, states: states, callers: callers, bounds: b, turn: make(chan struct{}, 1)}
	whole := b
	if callers {
		whole.limit = 0
	}
	fnCtx, end := g.scoped(ctx, h, states.grants(), whole)
	h.ctx = fnCtx
	defer h.end()
	defer end(fence.ErrReleased)
	return withCause(fnCtx, fn(fnCtx, h))
}

// run runs op under all grants of the Hold. It acquires nothing.
func (h *holdRunner[Tx]) run(ctx context.Context, resources []string, op storage.Op[Tx], o options) error {
	grants := h.states.grants()
	if err := nested(ctx, h.guard, h, resources); err != nil {
		return err
	}
	if missing := uncovered(resources, grants); missing != "" {
		return fmt.Errorf("%w: this is a Hold of %s: name %s beside it in one Hold", ErrInvalid, names(grants), missing)
	}
	return h.guard.observe(resources, o, func(operation *Operation) error {
		operation.Grants = grants
		select {
		case h.turn <- struct{}{}:
		case <-ctx.Done():
			return leftQueueError(ctx, names(grants), anotherCall)
		}
		defer func() { <-h.turn }()
		if h.over {
			return fmt.Errorf("guard: %s: %w", names(grants), fence.ErrReleased)
		}
		o := o.forResources(resources, h.states.resources())
		r := runs{options: o, again: h.again}
		for r.next(ctx) {
			operation.Runs++
			r.err = h.spent(h.guard.attempt(ctx, func() (context.Context, context.CancelCauseFunc) { return h.scoped(ctx) }, h.states, op, o, operation))
		}
		if h.callers {
			return asCallersGrantError(r.err, grants)
		}
		return r.err
	})
}

// hold rejects a Hold in a Hold.
func (h *holdRunner[Tx]) hold(context.Context, []string, func(context.Context, Runner[Tx]) error, options) error {
	return fmt.Errorf("%w: a Hold in a Hold of %s: name all resources in one Hold", ErrInvalid, names(h.states.grants()))
}

// again reports whether a transaction that failed with err may run again. It may not if a
// fence has moved since the Hold read: what earlier transactions read would be out of date.
func (h *holdRunner[Tx]) again(err error) bool { return temporary(err) && h.states.allClaimed() }

// spent adds to err that the Hold is over, if a fence has moved since the Hold read: then no
// later call on it can commit.
func (h *holdRunner[Tx]) spent(err error) error {
	inDoubt := slices.ContainsFunc(h.states, func(s *grantState) bool { return s.unresolved != nil })
	if err == nil || inDoubt || h.states.allClaimed() {
		return err
	}
	return fmt.Errorf("guard: %s: what was read may be out of date: this Hold is over, begin it anew: %w", names(h.states.grants()), err)
}

// scoped is Guard.scoped for a transaction of h. The context ends with the Hold too.
func (h *holdRunner[Tx]) scoped(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	fnCtx, end := h.guard.scoped(ctx, nil, h.states.grants(), h.bounds)
	stop := context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })
	return fnCtx, func(cause error) {
		stop()
		end(cause)
	}
}

// end waits for a transaction that another goroutine has begun. Later ones fail.
func (h *holdRunner[Tx]) end() {
	h.turn <- struct{}{}
	h.over = true
	<-h.turn
}
