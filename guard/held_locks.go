package guard

import "context"

// heldLocks is what a call has taken so far: the turns at its resources, in the order
// of their names.
//
// Whatever a call waits for, a turn in this process or a lock among processes,
// comes after all that it has in one order, which is the same everywhere: so calls
// that take several can't wait for each other in a circle. What is kept without
// being used is no obstacle: it is given up as soon as somebody waits for it.
type heldLocks struct {
	keeper    *keeper
	resources []string // in order, each once
	lines     []*line  // of the first resources, whose turns the call has
}

// own completes it, and makes sure that each ownership can be used. Where one
// can't, what comes after it is given back before it is acquired anew.
func (h *heldLocks) own(ctx context.Context) ([]*ownership, error) {
	owned := make([]*ownership, len(h.resources))
	for i, resource := range h.resources {
		if i < len(h.lines) {
			if owned[i] = h.lines[i].ownership; h.keeper.usable(owned[i]) {
				continue
			}
			h.giveBackFrom(ctx, i+1)
		} else {
			l, err := h.keeper.takeTurn(ctx, resource)
			if err != nil {
				return nil, err
			}
			h.lines = append(h.lines, l)
		}
		var err error
		if owned[i], err = h.keeper.own(ctx, h.lines[i]); err != nil {
			return nil, err
		}
	}
	return owned, nil
}

// giveBack gives the turns back from number n on, the last first.
func (h *heldLocks) giveBackFrom(ctx context.Context, n int) {
	for i := len(h.lines) - 1; i >= n; i-- {
		h.keeper.passTurn(ctx, h.lines[i])
	}
	h.lines = h.lines[:min(n, len(h.lines))]
}
