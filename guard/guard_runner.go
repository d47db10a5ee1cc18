package guard

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/storage"
)

// run acquires and claims grants of resources, and runs op under them.
func (g *Guard[Tx]) run(ctx context.Context, resources []string, op storage.Op[Tx], o options) error {
	if err := g.admit(ctx, resources); err != nil {
		return err
	}
	c := &guardCall{observation: g.report.begin(ctx, resources, o)}
	ctx = c.ctx
	defer c.report()
	op = labelled(g.profiles, resources, op)
	c.init(g.keeper, resources)
	c.atOnce = o.releaseAtOnce
	defer c.giveBackFrom(ctx, 0)
	batch, ok := op.(storage.BatchOp[Tx])
	c.alone = !ok || len(resources) > 1 || o.readOnly || !batch.Shares()
	r := &c.runs
	*r = runs{options: o.forResources(resources, resources), again: retryableUnderNewGrants}
	for r.next(ctx) {
		r.err = g.runOnce(ctx, c, op, r)
	}
	return c.ended(r.err)
}

// guardCall is a call on a Guard.
type guardCall struct {
	observation
	heldLocks
	runs   runs
	alone  bool   // it shares no transaction with other calls
	waiter waiter // of its first run; later ones keep the turn, or are alone
}

// runOnce runs op once: with the turn at each resource, under an ownership that it acquires
// and claims if need be. A batch may run in another call's transaction.
func (e *engine[Tx]) runOnce(ctx context.Context, c *guardCall, op storage.Op[Tx], r *runs) error {
	var batch *batchCall[Tx]
	if !c.alone {
		batch = &batchCall[Tx]{call: c, runs: r, op: op, ctx: ctx}
		if len(c.lines) == 0 {
			c.waiter.batch = batch
			l, err := e.keeper.takeTurn(ctx, c.Resources[0], &c.waiter)
			if err != nil {
				return err
			}
			if c.waiter.state == wasTaken {
				batch.line = l
				return e.afterGroup(ctx, batch)
			}
			c.lines = append(c.lines, l)
		}
	}
	owned, err := e.ownAndClaim(ctx, &c.heldLocks)
	if err == nil && batch != nil {
		batch.line = c.lines[0]
		return e.runBatch(ctx, batch)
	}
	if owned {
		c.Grants = c.states.grants()
		c.Runs++
	}
	if err != nil {
		return err
	}
	return e.attempt(ctx, c.states, function[Tx]{op, c.Grants, e.bounds(&c.heldLocks)}, r.options, &c.Operation)
}

// hold acquires and claims grants of resources, and runs fn while it holds them.
func (g *Guard[Tx]) hold(ctx context.Context, resources []string, fn func(ctx context.Context, h Runner[Tx]) error, o options) error {
	if err := g.admit(ctx, resources); err != nil {
		return err
	}
	locks := &heldLocks{}
	locks.init(g.keeper, resources)
	locks.atOnce = o.releaseAtOnce
	defer locks.giveBackFrom(ctx, 0)
	return retryHold(ctx, o, retryableUnderNewGrants, func() error {
		if _, err := g.ownAndClaim(ctx, locks); err != nil {
			return err
		}
		for _, l := range locks.lines {
			g.keeper.setByHold(l, true)
			defer g.keeper.setByHold(l, false)
		}
		return g.runHold(ctx, locks.states, g.bounds(locks), false, fn)
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
	return g.nested(ctx, g, resources)
}

// bounds returns the bounds of a function under what h owns.
func (e *engine[Tx]) bounds(h *heldLocks) bounds {
	return bounds{owned: h.owned, limit: e.keeper.cfg.MaxRun}
}

// ownAndClaim acquires what is missing in h, and claims it (G1). If an operator raised the
// lock service's epoch while the call waited for a lock, the grant's epoch is behind and the
// claim is rejected: ownAndClaim acquires another one. If that has the same epoch, the lock
// service itself is behind. owned says that h owns what it needs, whatever became of the claim.
func (e *engine[Tx]) ownAndClaim(ctx context.Context, h *heldLocks) (owned bool, err error) {
	var behind map[string]int64 // by resource: the highest epoch that was rejected
	for {
		if err := h.own(ctx); err != nil {
			return false, err
		}
		err := e.readyAll(ctx, h.states)
		if err == nil {
			return true, nil
		}
		rejection := rejectionOf(err, h.states.grants()...)
		if rejection == nil || rejection.Reason != storage.ReasonEpochBehind || rejection.Grant.Epoch <= behind[rejection.Grant.Resource] {
			return true, err
		}
		if behind == nil {
			behind = map[string]int64{}
		}
		behind[rejection.Grant.Resource] = rejection.Grant.Epoch
	}
}
