package guard

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/internal/turns"
	"github.com/fencekit/fencekit/storage"
)

// holdRunner is the Runner of a Hold.
type holdRunner[Tx any] struct {
	guard   *Guard[Tx]
	states  grantStates
	callers bool          // the grants, or leases, are the caller's
	bounds  bounds        // of each transaction, which also ends with the function that Hold runs
	turn    chan struct{} // has room while no transaction runs
	over    bool          // Hold has returned; used only with the turn
}

// runHold runs fn under states within b. If the grants are the caller's, b.limit bounds
// each transaction instead of the whole Hold.
func runHold[Tx any](ctx context.Context, g *Guard[Tx], states grantStates, b bounds, callers bool, fn func(ctx context.Context, h Runner[Tx]) error) error {
	if err := g.readyAll(ctx, states); err != nil {
		return err
	}
	states.setInHold(true)
	defer states.setInHold(false)
	h := &holdRunner[Tx]{guard: g, states: states, callers: callers, turn: make(chan struct{}, 1)} // mutant: transactions-of-a-hold-run-side-by-side
	run := newRunContext(ctx)
	run.guard, run.hold, run.grants = g, h, states.grants()
	h.bounds.hold = run // mutant: transactions-outlive-their-hold
	if callers {
		h.bounds.limit, b.limit = b.limit, 0
	}
	g.contexts.add(run)
	defer h.end()
	defer run.finish(fence.ErrReleased)
	run.bind(b, g.report)
	return turns.WithCause(run, fn(run, h))
}

// run runs op under all grants of the Hold. It acquires nothing.
func (h *holdRunner[Tx]) run(ctx context.Context, resources []string, op storage.Op[Tx], o options) error {
	grants := h.states.grants()
	if err := h.guard.nested(ctx, h, resources); err != nil {
		return err
	}
	if missing := uncovered(resources, grants); missing != "" {
		return fmt.Errorf("%w: this is a Hold of %s: name %s beside it in one Hold", ErrInvalid, names(grants), missing)
	}
	report := h.guard.report.begin(ctx, resources, o)
	ctx = report.ctx
	defer report.report()
	report.Grants = grants
	return report.ended(h.runs(ctx, resources, op, o, &report.Operation))
}

func (h *holdRunner[Tx]) runs(ctx context.Context, resources []string, op storage.Op[Tx], o options, operation *Operation) error {
	grants := operation.Grants
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return turns.LeftQueueError(ctx, names(grants))
	}
	defer func() { <-h.turn }()
	if h.over {
		return fmt.Errorf("guard: %s: the Hold has ended: %w", names(grants), fence.ErrReleased)
	}
	r := runs{options: o.forResources(resources, h.states.resources()), again: h.again}
	for r.next(ctx) {
		operation.Runs++
		r.err = h.spent(h.guard.attempt(ctx, h.states, function[Tx]{op, grants, h.bounds}, r.options, operation)) // mutant: a-hold-seals-one-of-its-grants
	}
	if h.callers {
		return asCallersGrantError(r.err, grants)
	}
	return r.err
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

// end waits for a transaction that another goroutine has begun. Later ones fail.
func (h *holdRunner[Tx]) end() {
	h.turn <- struct{}{}
	h.over = true
	<-h.turn
}
