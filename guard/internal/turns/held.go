package turns

import (
	"context"
	"slices"
	"sync"
)

// Held is what a call has of its resources: turns, in the order of their names, and leases. Use Init, and
// Return at the end; one goroutine at a time uses it.
//
// A call that waits for a turn in this process, or for a lock of another process, waits for a resource
// whose name is greater than those of all that it has. The order is the same in each process, so calls
// that take several never wait for each other in a circle. An idle lease blocks no other process: it is
// released as soon as one waits for it.
type Held[V Value] struct {
	Values []V // of the leases; complete after Take

	turns     *Turns[V]
	resources []string   // in order, each once
	lines     []*line[V] // of the first resources, whose turns the call has
	leases    []*kept[V]
	atOnce    bool      // they are not kept after the call
	waiter    waiter    // of the first turn
	taken     []*waiter // from the queue of the first resource
	one       struct {  // what the slices point to if there is one resource: no further allocation
		line  [1]*line[V]
		lease [1]*kept[V]
		value [1]V
	}
}

// Init prepares h, which is zero, for resources: in order, each once. If atOnce, they are released when the
// call has ended, unless other calls of the process wait for them.
func (h *Held[V]) Init(t *Turns[V], resources []string, atOnce bool) {
	h.turns, h.resources, h.atOnce = t, resources, atOnce
	if n := len(resources); n == 1 {
		h.lines, h.leases, h.Values = h.one.line[:0], h.one.lease[:], h.one.value[:]
	} else {
		h.lines, h.leases, h.Values = make([]*line[V], 0, n), make([]*kept[V], n), make([]V, n)
	}
}

// TakeOrOffer takes the turn at the only resource, or waits until another call that has it takes the offer,
// and ends the wait with EndTaken.
func (h *Held[V]) TakeOrOffer(ctx context.Context, offer any) (tookOffer bool, err error) {
	if len(h.lines) > 0 {
		return false, nil
	}
	h.waiter = waiter{offer: offer}
	l, err := h.turns.takeTurn(ctx, h.resources[0], &h.waiter)
	if l != nil {
		h.lines = append(h.lines, l)
	}
	return l == nil && err == nil, err
}

// Take takes the turns that are missing, and sets Values to those of usable leases. Before it acquires one
// anew, it gives back the turns at all later resources. It may be called again, when a lease may have
// become unusable.
func (h *Held[V]) Take(ctx context.Context) error {
	for i, resource := range h.resources {
		if i == len(h.lines) {
			l, err := h.turns.takeTurn(ctx, resource, &waiter{})
			if err != nil {
				return err
			}
			h.lines = append(h.lines, l)
			if err := h.takeFree(ctx); err != nil {
				return err
			}
		}
		l := h.lines[i]
		if !h.turns.usable(l.lease) {
			h.returnFrom(ctx, i+1)
			if err := h.turns.acquire(ctx, l); err != nil {
				return err
			}
		}
		l.lease.atOnce = h.atOnce
		h.leases[i], h.Values[i] = l.lease, l.lease.value
	}
	return nil
}

// takeFree acquires in one step, from the last of lines on, the resources that are missing, up to the first
// whose turn or lock isn't free. It keeps the turns that it took: Take gives them back if the call has
// to wait for an earlier resource.
func (h *Held[V]) takeFree(ctx context.Context) error {
	first := len(h.lines) - 1
	if h.lines[first].lease != nil {
		return nil
	}
	missing := []*line[V]{h.lines[first]}
	for _, resource := range h.resources[len(h.lines):] {
		l := h.turns.tryTurn(resource)
		if l == nil {
			break
		}
		h.lines = append(h.lines, l)
		if l.lease == nil {
			missing = append(missing, l)
		} else if !h.turns.usable(l.lease) {
			break
		}
	}
	if len(missing) == 1 {
		return nil
	}
	return h.turns.acquireAll(ctx, missing)
}

// Usable reports whether another call may begin under the lease of the first resource.
func (h *Held[V]) Usable() bool { return h.turns.usable(h.leases[0]) }

// OnEnd makes f learn of the end of each lease, with its error, at once if one has ended. It replaces an
// earlier f; nil means none.
func (h *Held[V]) OnEnd(f func(error)) {
	for _, o := range h.leases {
		o.setOnEnd(f)
	}
}

// ReleaseEarly releases the leases while a function still runs under them. No other call uses them. It
// doesn't wait for the releases.
func (h *Held[V]) ReleaseEarly() {
	for _, o := range h.leases {
		o.releaseEarly()
	}
}

// TakeWaiting takes the offers of up to n calls that wait for the only resource, from the front of the
// queue on, as long as accept returns true. They wait on until EndTaken.
func (h *Held[V]) TakeWaiting(n int, accept func(offer any) bool) {
	h.taken = h.turns.takeWaiting(h.lines[0], n, accept)
}

// EndTaken ends the waits of the calls whose offers TakeWaiting took, except of those for which back returns
// true: these get the first places in the queue, in their order, with another offer or nil.
func (h *Held[V]) EndTaken(back func(offer any) (next any, goes bool)) {
	if len(h.taken) > 0 {
		h.turns.endTaken(h.lines[0], h.taken, back)
		h.taken = nil
	}
}

// Return passes on all turns.
func (h *Held[V]) Return(ctx context.Context) { h.returnFrom(ctx, 0) }

// returnFrom passes on the turns from number n on, the last one first.
func (h *Held[V]) returnFrom(ctx context.Context, n int) {
	n = min(n, len(h.lines))
	passed := h.lines[n:]
	h.lines = h.lines[:n]
	if (h.atOnce || h.turns.KeepFor < 0) && len(passed) > 1 {
		h.returnAtOnce(ctx, passed)
		return
	}
	for _, l := range slices.Backward(passed) {
		h.turns.passTurn(ctx, l)
	}
}

// returnAtOnce passes on the turns at lines, and releases their locks, at the same time: a lock service can
// release them in one step.
func (h *Held[V]) returnAtOnce(ctx context.Context, lines []*line[V]) {
	var passing sync.WaitGroup
	for _, l := range lines {
		passing.Go(func() { h.turns.passTurn(ctx, l) })
	}
	passing.Wait()
}
