package guard

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// run acquires and claims grants of resources, and runs op under them.
func (g *Guard[Tx]) run(ctx context.Context, resources []string, op storage.Op[Tx], o options) error {
	if err := g.admit(ctx, resources); err != nil {
		return err
	}
	return g.observe(resources, o, func(operation *Operation) error {
		locks := &heldLocks{keeper: g.keeper, resources: resources}
		defer func() { locks.giveBackFrom(ctx, 0) }()
		o := o.forResources(resources, resources)
		r := runs{options: o, again: retryableUnderNewGrants}
		for r.next(ctx) {
			owned, err := g.ownAndClaim(ctx, locks)
			states := statesOf(owned)
			if owned != nil {
				operation.Grants = states.grants()
				operation.Runs++
			}
			if r.err = err; err != nil {
				continue
			}
			newContext := func() (context.Context, context.CancelCauseFunc) {
				return g.scoped(ctx, nil, states.grants(), g.ownBounds(owned))
			}
			r.err = g.attempt(ctx, newContext, states, op, o, operation)
		}
		return r.err
	})
}

// hold acquires and claims grants of resources, and runs fn while it holds them.
func (g *Guard[Tx]) hold(ctx context.Context, resources []string, fn func(ctx context.Context, h Runner[Tx]) error, o options) error {
	if err := g.admit(ctx, resources); err != nil {
		return err
	}
	locks := &heldLocks{keeper: g.keeper, resources: resources}
	defer func() { locks.giveBackFrom(ctx, 0) }()
	return retryHold(ctx, o, retryableUnderNewGrants, func() error {
		owned, err := g.ownAndClaim(ctx, locks)
		if err != nil {
			return err
		}
		for _, l := range locks.lines {
			g.keeper.setByHold(l, true)
			defer g.keeper.setByHold(l, false)
		}
		return g.runHold(ctx, statesOf(owned), g.ownBounds(owned), false, fn)
	})
}

// admit rejects calls that the Guard can't run.
func (g *Guard[Tx]) admit(ctx context.Context, resources []string) error {
	if g == nil {
		return errNoGuard
	}
	if g.keeper.locker == nil {
		return fmt.Errorf("%w: this Guard has no lock service: use UnderGrant or UnderLease", ErrInvalid)
	}
	return nested(ctx, g, g, resources)
}

// ownBounds returns the bounds of a function under what the Guard owns.
func (g *Guard[Tx]) ownBounds(owned []*ownership) bounds {
	leases := make([]fence.Lease, len(owned))
	for i, t := range owned {
		leases[i] = t.lease
	}
	return bounds{leases: leases, limit: g.keeper.cfg.MaxRun, overran: func() { g.keeper.overran(owned) }}
}

// ownAndClaim acquires what is missing in h, and claims it (G1). If an operator raised the
// lock service's epoch while the call waited for a lock, the grant's epoch is behind and the
// claim is rejected: ownAndClaim acquires another one. If that has the same epoch, the lock
// service itself is behind. What is owned is also returned with the error of a claim.
func (g *Guard[Tx]) ownAndClaim(ctx context.Context, h *heldLocks) ([]*ownership, error) {
	behind := map[string]int64{} // by resource: the highest epoch that was rejected
	for {
		owned, err := h.own(ctx)
		if err != nil {
			return nil, err
		}
		states := statesOf(owned)
		err = g.readyAll(ctx, states)
		rejection := rejectionOf(err, states.grants()...)
		if rejection == nil || rejection.Reason != storage.ReasonEpochBehind || rejection.Grant.Epoch <= behind[rejection.Grant.Resource] {
			return owned, err
		}
		behind[rejection.Grant.Resource] = rejection.Grant.Epoch
	}
}

func statesOf(owned []*ownership) grantStates {
	states := make(grantStates, len(owned))
	for i, t := range owned {
		states[i] = &t.grantState
	}
	return states
}
