package guard

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
)

type holdRunner[Tx any] struct {
	guard  *Guard[Tx]
	states grantStates
	grants []fence.Grant
	bounds bounds
	turn   chan struct{} // has room while no transaction runs
	ended  bool
}

func (g *Guard[Tx]) hold(ctx context.Context, fn func(ctx context.Context, h Runner[Tx]) error, o *options) error {
	if err := g.admit(ctx, o.Resources); err != nil {
		return err
	}
	h := acquisition{locks: g.locks, resources: o.Resources}
	defer h.unlockFrom(ctx, 0)
	return o.retryHold(ctx, retryableUnderNewGrants, func() error {
		if err := g.acquireAndClaim(ctx, &h, nil); err != nil {
			return err
		}
		return g.runHold(ctx, h.states, fn)
	})
}

func (g *Guard[Tx]) runHold(ctx context.Context, states grantStates, fn func(ctx context.Context, h Runner[Tx]) error) error {
	h := &holdRunner[Tx]{guard: g, states: states, grants: states.grants(), turn: make(chan struct{}, 1)} // mutant: transactions-of-a-hold-run-side-by-side
	run := g.locks.newContext(ctx, h.grants)
	run.hold = h
	var whole bounds
	if states[0].lock != nil {
		whole.limit = g.cfg.MaxRun
	} else {
		h.bounds.limit = g.cfg.MaxRun
	}
	h.bounds.hold = run // mutant: transactions-outlive-their-hold
	defer h.end()
	defer run.finish(fence.ErrReleased)
	run.bind(states, whole)
	return withCause(run, fn(run, h))
}

func (h *holdRunner[Tx]) run(ctx context.Context, c *call[Tx]) error {
	if err := h.guard.nested(ctx, h, c.Resources); err != nil {
		return err
	}
	if missing := uncovered(c.Resources, h.grants); missing != "" {
		return fmt.Errorf("%w: this is a Hold of %s: name %s beside it in one Hold", ErrInvalid, names(h.grants), missing)
	}
	return c.observe(ctx, h.guard, resourcesOf(h.grants), func() error { return h.inTurn(c) })
}

func (h *holdRunner[Tx]) inTurn(c *call[Tx]) error {
	if c.ctx.Err() != nil {
		return endError(c.ctx)
	}
	select {
	case h.turn <- struct{}{}:
	case <-c.ctx.Done():
		return leftQueueError(c.ctx, names(h.grants))
	}
	defer func() { <-h.turn }()
	if h.ended {
		return fmt.Errorf("guard: %s: the Hold has ended: %w", names(h.grants), fence.ErrReleased)
	}
	err := c.retry(c.ctx, h.retryable, func() error {
		return h.markOver(c.runUnder(h.states, h.bounds)) // mutant: a-hold-seals-one-of-its-grants
	})
	return asCallersGrantError(err, h.states)
}

func (h *holdRunner[Tx]) hold(context.Context, func(context.Context, Runner[Tx]) error, *options) error {
	return fmt.Errorf("%w: a Hold in a Hold of %s: name all resources in one Hold", ErrInvalid, names(h.grants))
}

// retryable stops at a moved fence: what the Hold has read would be out of date.
func (h *holdRunner[Tx]) retryable(err error) bool { return temporary(err) && h.states.allClaimed() }

func (h *holdRunner[Tx]) markOver(err error) error {
	inDoubt := slices.ContainsFunc(h.states, func(s *grantState) bool { return s.unresolved != nil })
	if err == nil || inDoubt || h.states.allClaimed() {
		return err
	}
	return fmt.Errorf("guard: %s: what was read may be out of date: this Hold is over, begin it again: %w", names(h.grants), err)
}

func (h *holdRunner[Tx]) end() {
	h.turn <- struct{}{}
	h.ended = true
	<-h.turn
}
