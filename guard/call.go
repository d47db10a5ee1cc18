package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/storage"
)

type call[Tx any] struct {
	options
	op          storage.Op[Tx]
	guard       *Guard[Tx]
	ctx         context.Context // as Started returned it
	states      grantStates
	transaction transaction[Tx]

	acquired      acquisition
	needsLease    bool  // needs locks: it can't claim in its own transaction
	runsAlone     bool  // shares no further transaction
	sharedOutcome error // after a shared transaction: what the call returns, or errRunsAgain
}

func (c *call[Tx]) observe(ctx context.Context, g *Guard[Tx], resources []string, run func() error) error {
	if c.once != nil {
		c.addNamesToKey(resources)
	}
	began := time.Now()
	c.guard, c.ctx = g, g.report.started(ctx, &c.Operation)
	c.Outcome = OutcomePanicked
	defer func() {
		c.Took = time.Since(began)
		g.report.finished(c.ctx, &c.Operation)
	}()
	c.Err = run()
	if c.Err != nil || c.Outcome != OutcomeRepeated {
		c.Outcome = outcomeOf(c.Err, c.Grants)
	}
	return c.Err
}

func (g *Guard[Tx]) run(ctx context.Context, c *call[Tx]) error {
	if err := g.admit(ctx, c.Resources); err != nil {
		return err
	}
	return c.observe(ctx, g, c.Resources, func() error {
		c.acquired.locks, c.acquired.resources = g.locks, c.Resources
		c.needsLease = g.claimer == nil || c.ReadOnly
		defer c.unlock()
		once := c.runAlone
		batch, isBatch := c.op.(storage.BatchOp[Tx])
		switch {
		case c.ReadOnly && (isBatch || c.retryable): // a write may overtake it
			once = c.runRead
		case !c.ReadOnly && isBatch && len(c.Resources) == 1 && batch.Shares():
			once = c.runBatch
		}
		return c.retry(c.ctx, retryableUnderNewGrants, once)
	})
}

func (c *call[Tx]) runAlone() error {
	for {
		if err := c.acquire(nil); err != nil {
			return err
		}
		if err := c.newTransaction(bounds{limit: c.guard.cfg.MaxRun}).run(); err != storage.ErrHeld {
			return err
		}
	}
}

// lockFreeRuns is how often a read runs without a lock, and is overtaken by moves, before it takes the lock.
const lockFreeRuns = 3

// runRead reads what the process doesn't own without a lock, unless moves overtake it again and again. What failed may
// have failed because it saw two positions, so that counts only if nothing has moved.
func (c *call[Tx]) runRead() error {
	if err := c.guard.locks.enter(); err != nil {
		return err
	}
	defer c.guard.locks.inUse.Done()
	if c.guard.locks.owns(c.Resources) {
		return c.runAlone()
	}
	looked, err := c.lookAtFences(true)
	for n := 0; n < lockFreeRuns && len(looked) > 0; n++ {
		c.states, c.Grants = looked, nil
		c.Runs++
		err := c.newTransaction(bounds{limit: c.guard.cfg.MaxRun}).run()
		if err == nil {
			c.guard.sightings.note(looked...)
			if slices.ContainsFunc(looked, func(s *grantState) bool { return c.guard.sightings.inDoubt(s.claim.Grant) }) {
				break // since it began
			}
		}
		// Of another failure of COMMIT the store knows whether to run again.
		checked := !c.transaction.sent || errors.Is(err, storage.ErrMoved) || errors.As(err, new(*storage.OpError))
		if err == nil || !checked || errors.Is(err, ErrTxEnded) || errors.Is(err, ErrStoreUnavailable) {
			return err
		}
		now, failed := c.lookAtFences(false)
		switch {
		case failed != nil:
			return failed
		case slices.Equal(now.claims(nil), looked.claims(nil)):
			return err
		}
		looked = now
	}
	if err != nil {
		return err
	}
	return c.runAlone()
}

// lookAtFences returns where the fences are, or if guess is true and nothing moved between the last two reads, where they were
// then. It returns nil if the read needs the lock: what has no fence yet, or went back, needs a claim, and a COMMIT in
// doubt may still arrive unless a higher grant has claimed.
func (c *call[Tx]) lookAtFences(guess bool) (grantStates, error) {
	g := c.guard
	claims := make([]storage.Claim, len(c.Resources))
	for i, resource := range c.Resources {
		seen := g.sightings.of(resource)
		claims[i].Grant.Resource = resource
		if guess = guess && seen.unmoved != nil; guess {
			claims[i] = *seen.unmoved
		}
		claims[i].Position = seen.position
	}
	if !guess {
		step := g.locks.newContext(c.ctx, nil)
		defer step.finish(nil)
		defer g.limitWait(step).Stop()
		var err error
		if claims, err = g.store.Look(step, claims...); err != nil {
			return nil, withCause(step, fmt.Errorf("guard: %s: look: %w", strings.Join(c.Resources, ", "), err))
		}
	}
	states := make(grantStates, len(claims))
	for i, claim := range claims {
		if g.sightings.inDoubt(claim.Grant) {
			return nil, nil
		}
		states[i] = &grantState{claim: claim, claimed: true}
	}
	return states, nil
}

// unlock lets go of leases of resources that other processes use too: they would have to ask for them.
func (c *call[Tx]) unlock() {
	if g := c.guard; g.claimer != nil && g.newHolder == nil && !c.ReadOnly {
		for _, l := range c.acquired.held {
			if s := l.grant; s != nil && s.lastUser != unknownUser {
				g.sightings.note(s)
				s.releaseInBackground = g.sightings.of(l.resource).uncontested < keepLeaseAfter
			}
		}
	}
	c.acquired.unlockFrom(c.ctx, 0)
}

// acquire takes what the call's transaction needs: turns, and leases unless it claims without, which are claimed unless it
// does that.
func (c *call[Tx]) acquire(shareable any) error {
	g := c.guard
	if !c.needsLease && g.newHolder == nil {
		if err := c.acquired.acquire(c.ctx, shareable); err != nil {
			return err
		}
		if c.states = c.acquired.states; c.states.claimableInTx() {
			for _, s := range c.states {
				s.claimsInTx, s.releaseInBackground = true, true
			}
			return nil
		}
	} else if !c.needsLease {
		if err := c.acquired.lockAll(c.ctx, shareable); err != nil {
			return err
		}
		if c.states = c.statesToClaimInTx(); c.states != nil {
			return nil
		}
	}
	err := g.acquireAndClaim(c.ctx, &c.acquired, shareable)
	c.noteRun(c.acquired.states)
	return err
}

// statesToClaimInTx returns nil if a resource is kept, or if no other process uses any, so that all can be kept.
func (c *call[Tx]) statesToClaimInTx() grantStates {
	g := c.guard
	if slices.ContainsFunc(c.acquired.held, func(l *localLock) bool { return l.grant != nil }) {
		return nil
	}
	states, holder := grantStates(c.acquired.oneState[:0]), g.newHolder()
	keeps := g.cfg.KeepFor > 0
	for _, l := range c.acquired.held {
		seen, s := g.sightings.of(l.resource), &grantState{lock: l, claimsInTx: true}
		keeps = keeps && seen.uncontested >= keepAfter
		s.claim.Grant.Resource, s.claim.Grant.Holder = l.resource, holder
		s.claim.Position = seen.position // mutant: own-claim-forgets-what-was-seen
		states = append(states, s)
	}
	if keeps {
		return nil
	}
	return states
}

func (c *call[Tx]) runUnder(states grantStates, b bounds) error {
	c.noteRun(states)
	if err := c.guard.settleAndClaim(c.ctx, states, b.hold != nil); err != nil {
		return err
	}
	return c.newTransaction(b).run()
}

func (c *call[Tx]) noteRun(states grantStates) {
	if len(states) > 0 {
		c.states, c.Grants = states, states.grants()
		c.Runs++
	}
}

// acquireAndClaim acquires what is missing in h and claims it. If an operator raised the epoch while the call waited, the
// claim is rejected, and acquireAndClaim acquires another grant; if that has the same epoch, the lock service itself is
// behind. So it does once more if the lock service had lost its count of tokens and was raised. If only the
// claim failed, h has its states.
func (g *Guard[Tx]) acquireAndClaim(ctx context.Context, h *acquisition, shareable any) error {
	var behind int64
	var raised bool
	for {
		if err := h.acquire(ctx, shareable); err != nil {
			return err
		}
		err := g.settleAndClaim(ctx, h.states, false)
		if err == nil {
			return nil
		}
		rejection := rejectionOf(err, h.states.grants()...)
		switch {
		case rejection == nil, wentBack(err):
			return err
		case rejection.Reason == storage.ReasonEpochBehind && rejection.Grant.Epoch > behind:
			behind = rejection.Grant.Epoch
		case !raised && slices.ContainsFunc(h.states, func(s *grantState) bool { return s.raised }):
			raised = true
		default:
			return err
		}
	}
}
