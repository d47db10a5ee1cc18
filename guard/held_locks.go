package guard

import "context"

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
}

// own takes the turns that are missing, and returns an ownership of each resource that
// can be used. Before it acquires one anew, it gives back the turns at all later resources.
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

// giveBackFrom passes on the turns from number n on, the last one first.
func (h *heldLocks) giveBackFrom(ctx context.Context, n int) {
	for i := len(h.lines) - 1; i >= n; i-- {
		h.keeper.passTurn(ctx, h.lines[i])
	}
	h.lines = h.lines[:min(n, len(h.lines))]
}
