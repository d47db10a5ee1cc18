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
		h := &hand{keeper: g.keeper, resources: resources}
		defer func() { h.giveBack(ctx, 0) }()
		return retry(ctx, o, againAnew, func() error { return g.runOnce(ctx, h, op, o.over(resources, resources), f) })
	})
}

// runOnce runs op once, under tenures that h takes.
func (g *Guard[Tx]) runOnce(ctx context.Context, h *hand, op storage.Op[Tx], o options, f *Finish) error {
	tenures, err := g.own(ctx, h)
	if tenures != nil {
		f.Grants = standingsOf(tenures).grants()
		f.Runs++
	}
	if err != nil {
		return err
	}
	enter := func() (context.Context, context.CancelCauseFunc) {
		return g.scoped(ctx, nil, standingsOf(tenures).grants(), g.ownBounds(tenures))
	}
	return g.attempt(ctx, enter, standingsOf(tenures), op, o, f)
}

// hold runs fn while grants of resources are held that it acquires.
func (g *Guard[Tx]) hold(ctx context.Context, resources []string, fn func(ctx context.Context, h Runner[Tx]) error, o options) error {
	if err := g.admit(ctx, resources); err != nil {
		return err
	}
	taken := &hand{keeper: g.keeper, resources: resources}
	defer func() { taken.giveBack(ctx, 0) }()
	return retryHold(ctx, o, againAnew, func() error {
		tenures, err := g.own(ctx, taken)
		if err != nil {
			return err
		}
		for _, l := range taken.lines {
			g.keeper.holding(l, true)
			defer g.keeper.holding(l, false)
		}
		return g.runHold(ctx, standingsOf(tenures), g.ownBounds(tenures), false, fn)
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
func (g *Guard[Tx]) ownBounds(tenures []*tenure) bounds {
	leases := make([]fence.Lease, len(tenures))
	for i, t := range tenures {
		leases[i] = t.lease
	}
	return bounds{leases: leases, limit: g.keeper.cfg.MaxRun, overran: func() { g.keeper.overran(tenures) }}
}

// own takes what h needs, and claims it (G1). If the lock service's epoch was raised
// while the call waited for the lock, its grant is behind: nothing has run under it, so
// another one is acquired. If that one has the same epoch, the lock service itself is
// behind. The tenures are also returned together with the error of a claim.
func (g *Guard[Tx]) own(ctx context.Context, h *hand) ([]*tenure, error) {
	behind := map[string]int64{} // by resource: the highest epoch that was refused
	for {
		tenures, err := h.own(ctx)
		if err != nil {
			return nil, err
		}
		ss := standingsOf(tenures)
		err = g.readyAll(ctx, ss)
		refusal := refusalOf(err, ss.grants()...)
		if refusal == nil || refusal.Reason != storage.ReasonEpochBehind || refusal.Grant.Epoch <= behind[refusal.Grant.Resource] {
			return tenures, err
		}
		behind[refusal.Grant.Resource] = refusal.Grant.Epoch
	}
}

func standingsOf(tenures []*tenure) standings {
	ss := make(standings, len(tenures))
	for i, t := range tenures {
		ss[i] = &t.standing
	}
	return ss
}
