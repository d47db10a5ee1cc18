package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// UnderGrant returns a Runner under grants that came from elsewhere, such as a request's header. Each call claims
// them and acquires nothing; the fence rejects a grant if a later one has claimed its resource. A call fails with a
// [*fence.InvalidGrantError] if there is no grant, if two are of one resource, or if the call names a resource
// without a grant.
//
// Transactions of one grant don't wait for each other. If two overlap, the later one to commit is rejected with
// [ErrOvertaken], and may run again. After an unknown outcome no call on this Guard begins under the grant until
// the outcome is known; other processes don't know of it.
//
// With [Once], a rejection says nothing about earlier calls with the same key: one whose answer was lost may have
// taken effect. A call with that key under a later grant returns its result, or runs the operation.
func (g *Guard[Tx]) UnderGrant(grants ...fence.Grant) Runner[Tx] {
	b := &callerRunner[Tx]{guard: g, grants: slices.Clone(grants), remedy: "send a grant of it along too"}
	slices.SortFunc(b.grants, func(a, b fence.Grant) int { return cmp.Compare(a.Resource, b.Resource) })
	b.invalid = g.check(b.grants)
	return b
}

// UnderLease returns a Runner under leases that the caller has acquired and still owns, such as a leader's. Each
// call commits under all of them or not at all: to write rows that others write under a resource of their own, a
// leader acquires that resource's lease too.
//
// The Guard never releases the leases, so a Hold may last as long as they do; to bound it, give ctx a deadline. A
// function's context ends with the leases.
//
// A deposed leader's writes are rejected once its successor's first call has claimed. If two transactions overlap,
// the later one to commit is rejected with [ErrOvertaken]. Each call claims, except on the Runner of a Hold. In the
// leader's own process, a call on the Guard itself for the resource waits until the lease is released.
func (g *Guard[Tx]) UnderLease(leases ...fence.Lease) Runner[Tx] {
	b := &callerRunner[Tx]{guard: g, leases: slices.Clone(leases), remedy: "acquire its lease too, and pass both to UnderLease"}
	if len(leases) == 0 || slices.ContainsFunc(leases, func(l fence.Lease) bool { return isNil(l) }) {
		b.invalid = fmt.Errorf("%w: UnderLease without a lease", ErrInvalid)
		return b
	}
	slices.SortFunc(b.leases, func(a, b fence.Lease) int { return cmp.Compare(a.Grant().Resource, b.Grant().Resource) })
	for _, l := range b.leases {
		b.grants = append(b.grants, l.Grant())
	}
	b.invalid = g.check(b.grants)
	return b
}

func (g *Guard[Tx]) check(grants []fence.Grant) error {
	if g == nil || g.locks == nil {
		return errNoGuard
	}
	if len(grants) == 0 {
		return &fence.InvalidGrantError{Part: "resource", Reason: "is missing: UnderGrant without a grant"}
	}
	for i, grant := range grants {
		if err := grant.Validate(); err != nil {
			return err
		}
		if i > 0 && grants[i-1].Resource == grant.Resource {
			return &fence.InvalidGrantError{Part: "resource", Reason: "has two grants: " + grant.Resource}
		}
	}
	return nil
}

type callerRunner[Tx any] struct {
	guard   *Guard[Tx]
	grants  []fence.Grant
	leases  []fence.Lease // in the order of grants; nil if they came without
	remedy  string
	invalid error
}

func (b *callerRunner[Tx]) run(ctx context.Context, c *call[Tx]) error {
	if err := b.admit(ctx, c.Resources); err != nil {
		return err
	}
	return c.observe(ctx, b.guard, resourcesOf(b.grants), func() error {
		return b.under(c.ctx, func(states grantStates) error {
			return c.retry(c.ctx, retryableUnderSameGrants, func() error {
				return c.runUnder(states, bounds{limit: b.guard.cfg.MaxRun})
			})
		})
	})
}

func (b *callerRunner[Tx]) hold(ctx context.Context, fn func(ctx context.Context, h Runner[Tx]) error, o *options) error {
	if err := b.admit(ctx, o.Resources); err != nil {
		return err
	}
	return b.under(ctx, func(states grantStates) error {
		return o.retryHold(ctx, retryableUnderSameGrants, func() error {
			if err := b.guard.settleAndClaim(ctx, states, false); err != nil {
				return err
			}
			return b.guard.runHold(ctx, states, fn)
		})
	})
}

func (b *callerRunner[Tx]) admit(ctx context.Context, resources []string) error {
	if b.invalid != nil {
		return b.invalid
	}
	if missing := uncovered(resources, b.grants); missing != "" {
		return &fence.InvalidGrantError{Part: "resource", Reason: fmt.Sprintf("is %s, and the call is for %s: %s", names(b.grants), missing, b.remedy)}
	}
	return b.guard.nested(ctx, b, resources)
}

func (b *callerRunner[Tx]) under(ctx context.Context, do func(states grantStates) error) error {
	g := b.guard
	states := make(grantStates, len(b.grants))
	for i, grant := range b.grants {
		states[i] = &grantState{claim: storage.Claim{Grant: grant, Position: g.sightings.of(grant.Resource).position}}
		if b.leases != nil {
			states[i].lease = b.leases[i]
		}
	}
	for i, l := range b.leases {
		if err := l.Context().Err(); err != nil {
			return asCallersGrantError(withCause(l.Context(), fmt.Errorf("guard: %s: %w", l.Grant().Resource, err)), states)
		}
		if claimed, ok := l.(storage.ClaimedLease); ok {
			if c, ok := claimed.TakeClaim(); ok {
				states[i].setPosition(c)
			}
		}
	}
	if err := endError(ctx); err != nil {
		return err
	}
	if err := g.locks.enter(); err != nil {
		return err
	}
	defer g.locks.inUse.Done()
	defer func() { g.sightings.note(states...) }()
	return asCallersGrantError(do(states), states)
}

// asCallersGrantError marks err as final if only other grants of the caller's can help.
func asCallersGrantError(err error, states grantStates) error {
	if err == nil || states[0].lock != nil {
		return err
	}
	rejection := rejectionOf(err, states.grants()...)
	over := rejection != nil && rejection.Reason != storage.ReasonOvertaken
	if over || errors.Is(err, fence.ErrLeaseLost) { // mutant: stale-grants-of-callers-look-safe-to-retry
		return &verdict{err, false}
	}
	return err
}
