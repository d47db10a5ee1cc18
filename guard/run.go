package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/internal/turns"
	"github.com/fencekit/fencekit/storage"
)

// guardCall is a call on a Guard.
type guardCall struct {
	observation
	held  held
	self  [1]*held // of held, for bounds
	runs  runs
	alone bool // it shares no transaction with other calls
}

func (c *guardCall) states() grantStates { return c.held.Values }

// bounds returns those of a function under what c holds.
func (c *guardCall) bounds(limit time.Duration) bounds {
	c.self[0] = &c.held
	return bounds{held: c.self[:], limit: limit}
}

// runOnce runs op once: with the turn at each resource, under a lease that it acquires and claims if need
// be. A batch may run in another call's transaction.
func runOnce[Tx any](ctx context.Context, g *Guard[Tx], c *guardCall, op storage.Op[Tx]) error {
	if !c.alone {
		return runBatch(ctx, g, c, op)
	}
	if err := g.takeForRun(ctx, c); err != nil {
		return err
	}
	return g.attempt(ctx, c.states(), function[Tx]{op, c.Grants, c.bounds(g.cfg.MaxRun)}, c.runs.options, &c.Operation)
}

// takeForRun acquires and claims what is missing for another run of c.
func (g *Guard[Tx]) takeForRun(ctx context.Context, c *guardCall) error {
	took, err := g.takeAndClaim(ctx, &c.held)
	if took {
		c.Grants = c.states().grants()
		c.Runs++
	}
	return err
}

// takeAndClaim acquires what is missing in h, and claims it (G1). If an operator raised the
// lock service's epoch while the call waited for a lock, the grant's epoch is behind and the
// claim is rejected: takeAndClaim acquires another one. If that has the same epoch, the lock
// service itself is behind. took says that h has what it needs, whatever became of the claim.
func (g *Guard[Tx]) takeAndClaim(ctx context.Context, h *held) (took bool, err error) {
	var behind map[string]int64 // by resource: the highest epoch that was rejected
	for {
		if err := h.Take(ctx); err != nil {
			return false, err
		}
		states := grantStates(h.Values)
		err := g.readyAll(ctx, states)
		if err == nil {
			return true, nil
		}
		rejection := rejectionOf(err, states.grants()...)
		if rejection == nil || rejection.Reason != storage.ReasonEpochBehind || rejection.Grant.Epoch <= behind[rejection.Grant.Resource] {
			return true, err
		}
		if behind == nil {
			behind = map[string]int64{}
		}
		behind[rejection.Grant.Resource] = rejection.Grant.Epoch
	}
}

// function is what a transaction runs, and what its context says and ends with.
type function[Tx any] struct {
	op     storage.Op[Tx]
	grants []fence.Grant
	bounds bounds
}

// attempt runs f once, in a transaction of its own (G4).
func (g *Guard[Tx]) attempt(ctx context.Context, states grantStates, f function[Tx], o options, operation *Operation) error {
	if err := g.readyAll(ctx, states); err != nil {
		return err
	}
	run := newRunContext(ctx)
	run.guard, run.grants = g, f.grants
	g.contexts.add(run)
	defer run.finish(nil)
	operation.inBatch(1, 0)
	if repeated, err := g.recall(run, states, o); err != nil {
		return err
	} else if repeated {
		operation.Outcome = OutcomeRepeated
		return nil
	}
	txn, err := g.begin(run, states, o.readOnly)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx) // also if op panics or ends its goroutine; after a COMMIT it does nothing
	if err := g.runIn(run, states, txn, f); err != nil {
		return err
	}
	move, err := moveOf(o)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return turns.EndError(ctx)
	}
	return g.commit(ctx, states, txn, o, move)
}

// begin begins a transaction under the claims of states.
func (g *Guard[Tx]) begin(run *runContext, states grantStates, readOnly bool) (storage.Txn[Tx], error) {
	defer g.steps.stop(g.steps.start(run))
	begin := g.store.Begin
	if readOnly {
		begin = g.store.BeginReadOnly
	}
	txn, err := begin(run, states.claims()...)
	if err != nil {
		return nil, g.stepFailed(run, states, "begin", err)
	}
	return txn, nil
}

// recall reports whether an operation with Once has taken effect before, and if so
// decodes the result that was kept. The claims' positions were acknowledged to their grants, and the
// store compares them: so the answer is durable, and not that of a superseded grant.
func (g *Guard[Tx]) recall(run *runContext, states grantStates, o options) (repeated bool, err error) {
	if o.once == nil {
		return false, nil
	}
	defer g.steps.stop(g.steps.start(run))
	result, found, err := g.store.Recall(run, *o.once, states.claims()...)
	switch {
	case errors.Is(err, ErrKeyReused):
		return false, err
	case err != nil:
		return false, g.stepFailed(run, states, "once", err)
	case !found:
		return false, nil
	}
	return true, o.decode(states.grants(), result)
}

// moveOf returns what an operation writes for each of its resources: its record, and its
// result if it has Once.
func moveOf(o options) (storage.Move, error) {
	move := storage.Move{Ops: []storage.OpRecord{o.record}}
	if o.once == nil {
		return move, nil
	}
	data, err := o.keep()
	move.Kept = []storage.Kept{{Key: *o.once, Result: data}}
	return move, err
}

// runIn runs f in txn, with a context that ends when f has returned.
func (g *Guard[Tx]) runIn(run *runContext, states grantStates, txn storage.Txn[Tx], f function[Tx]) error {
	run.bind(f.bounds, g.report)
	defer run.unbind(nil)
	if err := txn.Run(run, f.op); err != nil {
		return g.noteRejection(run, states, turns.WithCause(run, err))
	}
	return nil
}

// readyAll settles the transactions of the grants that are in doubt (G6), and claims the
// grants that need it (G1), all at once.
func (g *Guard[Tx]) readyAll(ctx context.Context, states grantStates) error {
	var unclaimed grantStates
	for _, s := range states {
		if err := g.settle(ctx, s); err != nil {
			return err
		}
		if !s.claimed { // mutant: run-before-the-claim
			unclaimed = append(unclaimed, s)
		}
	}
	for _, s := range unclaimed {
		if s.inHold { // mutant: hold-claims-again
			// A second claim would return the present position, as if what the Hold read at
			// an earlier one were still up to date.
			return cmp.Or(s.rejected, ErrOvertaken)
		}
	}
	if len(unclaimed) == 0 {
		return nil
	}
	return g.claim(ctx, unclaimed)
}

// claim claims the grants of states. If some are rejected, it claims the others all the
// same: the next call needs them.
func (g *Guard[Tx]) claim(ctx context.Context, states grantStates) error {
	start := time.Now()
	step := newRunContext(ctx)
	g.contexts.add(step)
	defer step.finish(nil)
	defer g.steps.stop(g.steps.start(step))
	claims, err := g.store.Claim(step, states.claims()...)
	took := time.Since(start)
	for i, claim := range claims {
		if claim != (storage.Claim{}) {
			states[i].moved(claim)
			g.report.claimed(ctx, states[i].claim.Grant, took)
		}
	}
	if err != nil {
		for _, s := range states {
			s.nameWentBack(err) // mutant: claim-whose-reply-was-lost-is-good
		}
		return g.stepFailed(step, states, "claim", err)
	}
	return nil
}

// nameWentBack corrects the reason in err if a claim was rejected as stale because the lock service
// went back: the grant that has the fence had claimed before this one was asked for, and has the
// higher token. Times can't show this: the machine may have been paused between acquiring and
// claiming.
func (s *grantState) nameWentBack(err error) {
	rejection := rejectionOf(err, s.claim.Grant)
	if rejection != nil && rejection.Reason == storage.ReasonStale && s.claimedBefore != nil && s.claimedBefore.Compare(s.claim.Grant) > 0 {
		rejection.Reason = storage.ReasonTokensWentBack
	}
}

// stepFailed returns the error for a step of the store that failed before op ran. A
// rejection needs no further text.
func (g *Guard[Tx]) stepFailed(ctx context.Context, states grantStates, step string, err error) error {
	if !states.rejectedBy(err) {
		err = turns.WithCause(ctx, fmt.Errorf("guard: %s: %s: %w", names(states.grants()), step, err))
	}
	return g.noteRejection(ctx, states, err)
}

// noteRejection reports and remembers the rejections of states in err, and returns err.
func (g *Guard[Tx]) noteRejection(ctx context.Context, states grantStates, err error) error {
	for _, s := range states {
		if rejection := rejectionOf(err, s.claim.Grant); rejection != nil {
			if s.travelled {
				rejection.Travelled = true
			}
			g.report.rejected(ctx, rejection)
			s.reject(rejection.Reason, err)
		}
	}
	return err
}

// commit commits txn, with the same move for each resource; with none if the operation only reads.
func (g *Guard[Tx]) commit(ctx context.Context, states grantStates, txn storage.Txn[Tx], o options, move storage.Move) error {
	if o.readOnly {
		return g.commitMoves(ctx, states, txn, o, nil)
	}
	return g.commitMoves(ctx, states, txn, o, slices.Repeat([]storage.Move{move}, len(states)))
}

// commitMoves commits txn, with a move for each resource. COMMIT has three outcomes: it took
// effect, it did not, or its answer was lost. In the last case commitMoves asks the store. The end
// of the caller's ctx must neither put a COMMIT in doubt nor keep it from being resolved.
func (g *Guard[Tx]) commitMoves(ctx context.Context, states grantStates, txn storage.Txn[Tx], o options, moves []storage.Move) error {
	detached := context.WithoutCancel(ctx)                                 // mutant: commit-ends-with-the-callers-context
	commitCtx, cancel := context.WithTimeout(detached, g.cfg.StoreTimeout) // mutant: commit-without-a-bound
	defer cancel()
	states.setClaimed(false) // until the outcome is known, the positions are not
	claims, err := txn.Commit(commitCtx, moves)
	if err == nil {
		for i, s := range states {
			s.moved(claims[i])
		}
		return nil
	}
	var doubt *storage.InDoubtError
	if errors.As(err, &doubt) { // mutant: doubt-is-taken-for-failure
		doubt.Err = g.nameLimit(doubt.Err)
		return g.resolve(detached, states, o, doubt) // mutant: doubt-is-taken-for-success
	}
	err = g.nameLimit(err)
	states.setClaimed(true) // nothing was committed, so the positions are what they were
	return g.noteRejection(ctx, states, err)
}

// nameLimit adds Config.StoreTimeout to err, if that has ended the COMMIT.
func (g *Guard[Tx]) nameLimit(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w (guard.Config.StoreTimeout is %v)", err, g.cfg.StoreTimeout)
}

// resolve asks what became of a COMMIT until there is an answer or the time is up.
func (g *Guard[Tx]) resolve(ctx context.Context, states grantStates, o options, doubt *storage.InDoubtError) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ResolveTimeout)
	defer cancel()
	unknown := &UnknownOutcomeError{
		Record: o.record, Grants: states.grants(), Once: o.once != nil, Err: doubt.Err, inDoubt: doubt.InDoubt, resolve: g.store.Resolve,
	}
	if states[0].callers {
		g.memory.leaveDoubt(unknown)
	}
	start := time.Now()
	for tries := 1; ; tries++ {
		applied, err := g.store.Resolve(ctx, doubt.InDoubt)
		switch {
		case err == nil || errors.Is(err, ErrTxEnded):
			g.memory.settled(unknown)
			g.report.resolved(ctx, states.grants(), o.record, applied, nil, time.Since(start))
			switch {
			case err != nil:
				return err
			case !applied:
				return &notAppliedError{resources: names(states.grants()), err: doubt.Err}
			}
			for _, s := range states {
				s.applied(doubt.InDoubt)
			}
			return nil
		case states.rejectedBy(err) || !pause(ctx, tries):
			unknown.AskErr = g.noteRejection(ctx, states, err)
			for _, s := range states {
				s.unresolved, s.unreported = unknown, true
			}
			g.report.unknown(ctx, unknown, time.Since(start))
			return unknown
		}
	}
}

// settle asks once more about the transactions that earlier calls left in doubt, or others under a grant of
// the caller's: after its own, those that they have left since. If the answer can't be had, the grant is
// given up where the Guard can acquire another: once that one has claimed, the transaction has either
// committed or never will.
func (g *Guard[Tx]) settle(ctx context.Context, s *grantState) error {
	for doubt := g.doubtOf(s); doubt != nil; doubt = g.doubtOf(s) {
		if err := g.settleOne(ctx, s, doubt); err != nil {
			return err
		}
	}
	return nil
}

// doubtOf returns what is in doubt under the grant of s, or nil.
func (g *Guard[Tx]) doubtOf(s *grantState) *UnknownOutcomeError {
	if s.unresolved == nil && s.callers {
		return g.memory.doubtUnder(s)
	}
	return s.unresolved
}

func (g *Guard[Tx]) settleOne(ctx context.Context, s *grantState, doubt *UnknownOutcomeError) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ResolveTimeout)
	defer cancel()
	start := time.Now()
	applied, err := g.store.Resolve(ctx, doubt.inDoubt)
	if errors.Is(err, ErrTxEnded) {
		err = nil // that is for the call that left it
	}
	g.report.resolved(ctx, doubt.Grants, doubt.Record, applied, err, time.Since(start))
	if err != nil {
		s.dead = true
		return g.stepFailed(ctx, grantStates{s}, "an earlier operation is unresolved", err)
	}
	g.memory.settled(doubt)
	if applied && s.unresolved != nil { // after another call's the claim says where the fence is
		s.applied(doubt.inDoubt)
	}
	s.unresolved = nil
	return nil
}
