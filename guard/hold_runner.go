package guard

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// held is the Runner of a Hold.
type held[Tx any] struct {
	guard   *Guard[Tx]
	ss      standings
	brought bool            // the grants are the caller's
	bounds  bounds          // of each transaction
	ctx     context.Context // ends when the function that Hold runs has returned
	turn    chan struct{}   // has room while no transaction runs
	over    bool            // Hold has returned; written and read with the turn
}

// runHold runs fn under ss within b. If the grants are the caller's, b.limit bounds
// each transaction and not the whole.
func (g *Guard[Tx]) runHold(ctx context.Context, ss standings, b bounds, brought bool, fn func(ctx context.Context, h Runner[Tx]) error) error {
	if err := g.readyAll(ctx, ss); err != nil {
		return err
	}
	ss.held(true)
	defer ss.held(false)
	h := &held[Tx]{guard: g, ss: ss, brought: brought, bounds: b, turn: make(chan struct{}, 1)}
	whole := b
	if brought {
		whole.limit = 0
	}
	fnCtx, end := g.scoped(ctx, h, ss.grants(), whole)
	h.ctx = fnCtx
	defer h.end()
	defer end(fence.ErrReleased)
	return withCause(fnCtx, fn(fnCtx, h))
}

// run runs op under all grants of the Hold. It never acquires another one.
func (h *held[Tx]) run(ctx context.Context, resources []string, op storage.Op[Tx], o options) error {
	grants := h.ss.grants()
	if err := nested(ctx, h.guard, h, resources); err != nil {
		return err
	}
	if missing := covered(resources, grants); missing != "" {
		return fmt.Errorf("%w: this is a Hold of %s: name %s beside it in one Hold", ErrInvalid, names(grants), missing)
	}
	return h.guard.observe(resources, o, func(f *Finish) error {
		f.Grants = grants
		select {
		case h.turn <- struct{}{}:
		case <-ctx.Done():
			return leftLine(ctx, names(grants), anotherCall)
		}
		defer func() { <-h.turn }()
		if h.over {
			return fmt.Errorf("guard: %s: %w", names(grants), fence.ErrReleased)
		}
		err := retry(ctx, o, h.again, func() error { return h.runOnce(ctx, op, o.over(resources, h.ss.resources()), f) })
		if h.brought {
			return ofCallers(err, grants)
		}
		return err
	})
}

// hold rejects a Hold in a Hold.
func (h *held[Tx]) hold(context.Context, []string, func(context.Context, Runner[Tx]) error, options) error {
	return fmt.Errorf("%w: a Hold in a Hold of %s: name all resources in one Hold", ErrInvalid, names(h.ss.grants()))
}

// again allows another run only while the positions that this Hold has read at are
// still the fences': an earlier transaction's reads are not read anew.
func (h *held[Tx]) again(err error) bool { return temporary(err) && h.ss.allClaimed() }

// runOnce runs op once with the turn.
func (h *held[Tx]) runOnce(ctx context.Context, op storage.Op[Tx], o options, f *Finish) error {
	f.Runs++
	err := h.guard.attempt(ctx, func() (context.Context, context.CancelCauseFunc) { return h.scoped(ctx) }, h.ss, op, o, f)
	inDoubt := slices.ContainsFunc(h.ss, func(s *standing) bool { return s.doubt != nil })
	if err == nil || inDoubt || h.ss.allClaimed() {
		return err
	}
	return fmt.Errorf("guard: %s: what was read may be out of date: this Hold is over, begin it anew: %w", names(h.ss.grants()), err)
}

// scoped is Guard.scoped for a transaction of h: its context ends with the Hold too.
func (h *held[Tx]) scoped(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	fnCtx, end := h.guard.scoped(ctx, nil, h.ss.grants(), h.bounds)
	stop := context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })
	return fnCtx, func(cause error) {
		stop()
		end(cause)
	}
}

// end waits for a transaction that another goroutine has begun, and lets none
// begin any more.
func (h *held[Tx]) end() {
	h.turn <- struct{}{}
	h.over = true
	<-h.turn
}
