package guard

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// run runs op under grants of resources that it acquires.
func (g *Guard[Tx]) run(ctx context.Context, resources []string, op storage.Op[Tx], o options) error {
	if err := g.admit(ctx, resources); err != nil {
		return err
	}
	return g.observe(resources, o, func(f *Finish) error {
		h := &heldLocks{keeper: g.keeper, resources: resources}
		defer func() { h.giveBackFrom(ctx, 0) }()
		return retry(ctx, o, retryableUnderNewGrants, func() error { return g.runOnce(ctx, h, op, o.forResources(resources, resources), f) })
	})
}

// runOnce runs op once, under owned that h takes.
func (g *Guard[Tx]) runOnce(ctx context.Context, h *heldLocks, op storage.Op[Tx], o options, f *Finish) error {
	owned, err := g.ownAndClaim(ctx, h)
	if owned != nil {
		f.Grants = statesOf(owned).grants()
		f.Runs++
	}
	if err != nil {
		return err
	}
	newContext := func() (context.Context, context.CancelCauseFunc) {
		return g.scoped(ctx, nil, statesOf(owned).grants(), g.ownBounds(owned))
	}
	return g.attempt(ctx, newContext, statesOf(owned), op, o, f)
}

// hold runs fn while grants of resources are held that it acquires.
func (g *Guard[Tx]) hold(ctx context.Context, resources []string, fn func(ctx context.Context, h Runner[Tx]) error, o options) error {
	if err := g.admit(ctx, resources); err != nil {
		return err
	}
	taken := &heldLocks{keeper: g.keeper, resources: resources}
	defer func() { taken.giveBackFrom(ctx, 0) }()
	return retryHold(ctx, o, retryableUnderNewGrants, func() error {
		owned, err := g.ownAndClaim(ctx, taken)
		if err != nil {
			return err
		}
		for _, l := range taken.lines {
			g.keeper.setByHold(l, true)
			defer g.keeper.setByHold(l, false)
		}
		return g.runHold(ctx, statesOf(owned), g.ownBounds(owned), false, fn)
	})
}

// admit rejects calls that can't be run.
func (g *Guard[Tx]) admit(ctx context.Context, resources []string) error {
	if g == nil {
		return errNoGuard
	}
	if g.keeper.locker == nil {
		return fmt.Errorf("%w: this Guard has no lock service: use UnderGrant or UnderLease", ErrInvalid)
	}
	return nested(ctx, g, g, resources)
}

// ownBounds are those of a function under grants that the Guard has acquired.
func (g *Guard[Tx]) ownBounds(owned []*ownership) bounds {
	leases := make([]fence.Lease, len(owned))
	for i, t := range owned {
		leases[i] = t.lease
	}
	return bounds{leases: leases, limit: g.keeper.cfg.MaxRun, overran: func() { g.keeper.overran(owned) }}
}

// ownAndClaim takes what h needs, and claims it (G1). If the lock service's epoch was raised
// while the call waited for the lock, its grant is behind: nothing has run under it, so
// another one is acquired. If that one has the same epoch, the lock service itself is
// behind. The owned are also returned together with the error of a claim.
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
