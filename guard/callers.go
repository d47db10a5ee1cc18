package guard

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// UnderGrant returns a Runner under grants that came from elsewhere, such as a
// request's header. Each call claims them first and acquires nothing; the fence rejects a
// grant if a later one has claimed its resource. A call fails with a
// [*fence.InvalidGrantError] if there is no grant, if two are of one resource, or if the
// call names a resource without a grant.
//
// Transactions of one grant don't wait for each other. Of two that overlap, the later one to
// commit is rejected with [ErrOvertaken], and may be run again. After one whose outcome is unknown
// no call on this Guard begins under that grant until it can be learned; a process that has the
// grant as well knows nothing of it. If a grant is a Hold's, and
// the store keeps that Hold's fence, the transaction overtakes the Hold, which has to be
// begun anew.
//
// With [Once], a rejection says nothing about earlier calls with the same key: one whose
// answer was lost may have taken effect before the grant became stale. A call with that key
// under a later grant returns its result, or runs the operation.
func (g *Guard[Tx]) UnderGrant(grants ...fence.Grant) Runner[Tx] {
	return &callerRunner[Tx]{guard: g, grants: inOrder(grants, func(g fence.Grant) fence.Grant { return g })}
}

// UnderLease returns a Runner under leases that the caller has acquired and still owns, such
// as a leader's. Each call commits under all of them, or not at all: to write rows that others
// write under a resource of their own, a leader acquires that resource's lease too.
//
// The Guard never releases the leases, so a Hold may last for as long as the caller leads.
// Config.MaxRun bounds each transaction; to bound a whole Hold, give ctx a deadline. A
// function's context ends with the leases.
//
// Transactions move the fences of the leases' resources, so the writes of a deposed leader are
// rejected once its successor's first call under its own lease has claimed. Concurrent calls
// don't wait for each other: of two transactions that overlap, the later one to commit is
// rejected with [ErrOvertaken]. Each call claims, except those on the Runner of a Hold. In the
// leader's own process, a call on the Guard itself for the resource waits until the lease is
// released.
func (g *Guard[Tx]) UnderLease(leases ...fence.Lease) Runner[Tx] {
	b := &callerRunner[Tx]{guard: g, leased: true}
	for _, l := range leases {
		if isNil(l) {
			return b // its calls fail, as without a lease
		}
	}
	b.leases = inOrder(leases, fence.Lease.Grant)
	for _, l := range b.leases {
		b.grants = append(b.grants, l.Grant())
	}
	return b
}

// inOrder returns a copy of all, in order of the names of their grants' resources.
func inOrder[T any](all []T, grant func(T) fence.Grant) []T {
	return slices.SortedFunc(slices.Values(all), func(a, b T) int { return cmp.Compare(grant(a).Resource, grant(b).Resource) })
}

// callerRunner is a Runner under grants or leases of the caller's.
type callerRunner[Tx any] struct {
	guard  *Guard[Tx]
	leased bool
	leases []fence.Lease // one for each of grants, if leased
	grants []fence.Grant // in order of their resources' names
}

// run runs c under all grants of b.
func (b *callerRunner[Tx]) run(ctx context.Context, c *call[Tx]) error {
	if err := b.admit(ctx, c.Resources); err != nil {
		return err
	}
	c.nameKey(resourcesOf(b.grants))
	return c.observed(ctx, b.guard, func() error {
		c.Grants = slices.Clone(b.grants)
		return b.under(c.ctx, func(states grantStates) error {
			c.states, c.bounds = states, bounds{states: states, limit: b.guard.cfg.MaxRun}
			return c.retry(c.ctx, retryableUnderSameGrants, c.attemptUnder)
		})
	})
}

// attemptUnder is attempt under grants that c hasn't acquired.
func (c *call[Tx]) attemptUnder() error {
	c.Runs++
	if err := c.guard.ready(c.ctx, c.states); err != nil {
		return err
	}
	return c.attempt()
}

// hold runs fn while the grants of b are held.
func (b *callerRunner[Tx]) hold(ctx context.Context, fn func(ctx context.Context, h Runner[Tx]) error, o *options) error {
	if err := b.admit(ctx, o.Resources); err != nil {
		return err
	}
	return b.under(ctx, func(states grantStates) error {
		return o.retryHold(ctx, retryableUnderSameGrants, func() error {
			if err := b.guard.ready(ctx, states); err != nil {
				return err
			}
			return b.guard.runHold(ctx, states, fn)
		})
	})
}

// admit rejects calls that b can't run.
func (b *callerRunner[Tx]) admit(ctx context.Context, resources []string) error {
	if b.guard == nil {
		return errNoGuard
	}
	if b.leased && len(b.leases) == 0 {
		return fmt.Errorf("%w: UnderLease without a lease", ErrInvalid)
	}
	if len(b.grants) == 0 {
		return &fence.InvalidGrantError{Part: "resource", Reason: "is missing: UnderGrant without a grant"}
	}
	for i, grant := range b.grants {
		if err := grant.Validate(); err != nil {
			return err
		}
		if i > 0 && b.grants[i-1].Resource == grant.Resource {
			return &fence.InvalidGrantError{Part: "resource", Reason: "has two grants: " + grant.Resource}
		}
	}
	if missing := uncovered(resources, b.grants); missing != "" {
		remedy := "send a grant of it along too"
		if b.leased {
			remedy = "acquire its lease too, and pass both to UnderLease"
		}
		return &fence.InvalidGrantError{Part: "resource", Reason: fmt.Sprintf("is %s, and the call is for %s: %s", names(b.grants), missing, remedy)}
	}
	return b.guard.nested(ctx, b, resources)
}

// under calls do under the grants of b; Close waits for it.
func (b *callerRunner[Tx]) under(ctx context.Context, do func(states grantStates) error) error {
	g := b.guard
	states := make(grantStates, len(b.grants))
	for i, grant := range b.grants {
		states[i] = &grantState{claim: storage.Claim{Grant: grant, Position: g.memory.position(grant.Resource)}}
		if b.leased {
			states[i].lease = b.leases[i]
		}
	}
	for _, l := range b.leases {
		if err := l.Context().Err(); err != nil {
			return asCallersGrantError(withCause(l.Context(), fmt.Errorf("guard: %s: %w", l.Grant().Resource, err)), states)
		}
	}
	if err := endError(ctx); err != nil {
		return err
	}
	if err := g.lines.enter(); err != nil {
		return err
	}
	defer g.lines.leave()
	defer g.memory.endCallersCall(states)
	return asCallersGrantError(do(states), states)
}
