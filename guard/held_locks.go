package guard

import (
	"context"
	"slices"
	"sync"
)

// heldLocks is what a call has taken so far: the turns at its resources, in the order
// of their names.
//
// A call that waits for a turn in this process, or for a lock of another process, waits for
// a resource whose name is greater than those of all that it has. The order is the same in
// each process, so calls that take several never wait for each other in a circle. An idle
// ownership blocks no other process: it is released as soon as one waits for it.
type heldLocks struct {
	keeper    *keeper
	resources []string // in order, each once
	lines     []*line  // of the first resources, whose turns the call has
	owned     []*ownership
	states    grantStates // of owned
	atOnce    bool        // they are not kept after the call
	one       struct {    // what the slices point to if there is one resource: no further allocation
		line  [1]*line
		owned [1]*ownership
		state [1]*grantState
	}
}

// init prepares h, which is zero, for resources.
func (h *heldLocks) init(k *keeper, resources []string) {
	h.keeper, h.resources = k, resources
	if n := len(resources); n == 1 {
		h.lines, h.owned, h.states = h.one.line[:0], h.one.owned[:], h.one.state[:]
	} else {
		h.lines, h.owned, h.states = make([]*line, 0, n), make([]*ownership, n), make(grantStates, n)
	}
}

// own takes the turns that are missing, and sets h.owned to a usable ownership of each resource.
// Before it acquires one anew, it gives back the turns at all later resources.
func (h *heldLocks) own(ctx context.Context) error {
	for i, resource := range h.resources {
		if i == len(h.lines) {
			l, err := h.keeper.takeTurn(ctx, resource, &waiter{})
			if err != nil {
				return err
			}
			h.lines = append(h.lines, l)
			if err := h.ownFree(ctx); err != nil {
				return err
			}
		}
		o, err := h.lines[i].ownership, error(nil)
		if !h.keeper.usable(o) {
			h.giveBackFrom(ctx, i+1)
			if o, err = h.keeper.own(ctx, h.lines[i]); err != nil {
				return err
			}
		}
		o.atOnce = h.atOnce
		h.owned[i], h.states[i] = o, &o.grantState
	}
	return nil
}

// ownFree acquires in one step, from the last of h.lines on, the resources that are missing, up to
// the first whose turn or lock isn't free. It keeps the turns that it took: own gives them back if
// the call has to wait for an earlier resource.
func (h *heldLocks) ownFree(ctx context.Context) error {
	first := len(h.lines) - 1
	if h.lines[first].ownership != nil {
		return nil
	}
	missing := []*line{h.lines[first]}
	for _, resource := range h.resources[len(h.lines):] {
		l := h.keeper.tryTurn(resource)
		if l == nil {
			break
		}
		h.lines = append(h.lines, l)
		if l.ownership == nil {
			missing = append(missing, l)
		} else if !h.keeper.usable(l.ownership) {
			break
		}
	}
	if len(missing) == 1 {
		return nil
	}
	return h.keeper.ownAll(ctx, missing)
}

// giveBackFrom passes on the turns from number n on, the last one first.
func (h *heldLocks) giveBackFrom(ctx context.Context, n int) {
	n = min(n, len(h.lines))
	passed := h.lines[n:]
	h.lines = h.lines[:n]
	if (h.atOnce || h.keeper.cfg.KeepFor < 0) && len(passed) > 1 {
		h.keeper.passAtOnce(ctx, passed)
		return
	}
	for _, l := range slices.Backward(passed) {
		h.keeper.passTurn(ctx, l)
	}
}

// passAtOnce passes on the turns at lines, and releases their locks, at the same time: a lock
// service can release them in one step.
func (k *keeper) passAtOnce(ctx context.Context, lines []*line) {
	var passing sync.WaitGroup
	for _, l := range lines {
		passing.Go(func() { k.passTurn(ctx, l) })
	}
	passing.Wait()
}
