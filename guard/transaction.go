package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// transaction is that of one call, or of several with batches, which wait in the queue of the leader's resource when
// it begins.
type transaction[Tx any] struct {
	leader   *call[Tx]
	bounds   bounds
	mayShare bool // takes calls from the queue

	states  grantStates
	calls   []*call[Tx] // the leader, and those of taken
	sharers []*waiter
	sent    bool

	recalled bool         // by what was kept: a transaction with claims of its own has not made them
	oneCall  [1]*call[Tx] // memory for a single call
}

func (c *call[Tx]) newTransaction(b bounds) *transaction[Tx] {
	t := &c.transaction
	*t = transaction[Tx]{leader: c, bounds: b, states: c.states, oneCall: [1]*call[Tx]{c}}
	t.calls = t.oneCall[:]
	c.BatchSize, c.BatchPlace = 1, 0
	return t
}

func (t *transaction[Tx]) run() (err error) {
	c, begin, own := t.leader, t.begin, t.states[0].claimsInTx
	if own {
		begin = t.beginAndClaim
		defer func() { t.noteOwnClaims(err) }()
	}
	grants := c.Grants
	if grants == nil || own { // it has none yet, or reads without
		grants = t.states.grants()
	}
	run := c.guard.locks.newContext(c.ctx, grants)
	defer run.finish(nil)
	if c.once != nil && !own {
		before := func(ctx context.Context, key storage.OnceKey) ([]byte, bool, error) {
			return c.guard.store.Recall(ctx, key, c.states.claims(nil)...)
		}
		if repeated, err := c.recall(run, before); repeated || err != nil {
			return err
		}
	}
	txn, err := begin(run)
	if err != nil {
		return err
	}
	defer txn.Rollback(c.ctx) // also after a panic; after a COMMIT it does nothing
	if c.once != nil && own {
		before := func(ctx context.Context, key storage.OnceKey) ([]byte, bool, error) {
			result, found, there, err := txn.(storage.OwnTxn[Tx]).Recall(ctx, key)
			for i, position := range there {
				t.states[i].claim.Position, t.recalled = position, true
			}
			return result, found, err
		}
		if repeated, err := c.recall(run, before); repeated || err != nil {
			return err
		}
	}
	if err := t.runOps(run, txn); err != nil {
		return c.guard.noteRejection(c.ctx, t.states, err)
	}
	moves, err := t.moves(run)
	if err != nil {
		return err
	}
	if len(t.calls) == 1 && c.ctx.Err() != nil {
		return endError(c.ctx)
	}
	t.sent = true
	err = c.guard.commit(c.ctx, t.states, txn, moves, &c.options)
	if err == nil {
		t.setReceipts(moves)
	}
	return err
}

func (t *transaction[Tx]) setReceipts(moves []storage.Move) {
	for _, c := range t.calls {
		for i, s := range t.states {
			if c.receipt != nil && *moves[i].Hash != [32]byte{} { // else the answer was lost
				*c.receipt = append(*c.receipt, storage.ReceiptEntry{Grant: s.claim.Grant, Position: s.claim.Position, Hash: *moves[i].Hash})
			}
		}
	}
}

// recall decodes a kept result. The store has compared the positions, or has locked the fences and committed, so the
// result is durable and not a superseded grant's.
func (c *call[Tx]) recall(run *runContext, recall func(context.Context, storage.OnceKey) ([]byte, bool, error)) (repeated bool, err error) {
	defer c.guard.limitWait(run).Stop()
	result, found, err := recall(run, *c.once)
	switch {
	case errors.Is(err, ErrKeyReused):
		return false, err
	case err != nil:
		return false, c.guard.stepFailed(run, c.states, "once", err)
	case !found:
		return false, nil
	}
	if err := c.result.decode(result); err != nil {
		return false, fmt.Errorf("guard: %s: the result that was kept under key %q doesn't fit; call with the type that it was kept with, or take a new key for a new operation: %w", names(c.Grants), c.once.Key, err)
	}
	c.Outcome = OutcomeRepeated
	return true, nil
}

// begin takes other calls only once the store has a connection. Until then more can come, and others can leave.
func (t *transaction[Tx]) begin(run *runContext) (txn storage.Txn[Tx], err error) {
	g := t.leader.guard
	defer g.limitWait(run).Stop()
	begin := g.store.Begin
	if t.leader.ReadOnly {
		begin = g.store.BeginReadOnly
	}
	if txn, err = begin(run, t.states.claims(run.oneClaim[:0])...); err != nil {
		return nil, g.stepFailed(run, t.states, "begin", err)
	}
	if t.mayShare {
		t.takeSharers()
	}
	return txn, nil
}

// beginAndClaim waits for transactions of other processes for as long as the call's context lasts, and for each answer for
// StoreTimeout.
func (t *transaction[Tx]) beginAndClaim(run *runContext) (storage.Txn[Tx], error) {
	c, g := t.leader, t.leader.guard
	defer context.AfterFunc(g.locks.closing, func() { run.end(ErrClosed) })()
	for waited := false; ; waited = true {
		txn, claims, err := g.claimer.BeginOwn(run, g.cfg.StoreTimeout, t.states.claims(run.oneClaim[:0])...)
		switch {
		case err == storage.ErrHeld:
			c.needsLease, c.acquired.releaseBeforeReturn = true, g.newHolder != nil // mutant: own-claim-beside-a-lock
			for _, s := range t.states {
				s.lastUser = anotherProcess
			}
			return nil, err
		case err == storage.ErrBusy && run.Err() == nil: // mutant: own-claim-gives-up
			continue
		case err == storage.ErrBusy, waited && run.Err() != nil && errors.Is(err, run.Err()):
			return nil, withCause(run, fmt.Errorf("guard: %s: gave up waiting behind a call of another process: %w", names(t.states.grants()), run.Err()))
		case err != nil:
			if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrStoreUnavailable) {
				run.end(g.locks.timeoutError) // unless it has ended
			}
			c.noteRun(t.states)
			return nil, g.stepFailed(run, t.states, "claim", err)
		}
		for i, s := range t.states {
			s.noteLastUser(claims[i])
			if s.lease == nil {
				s.claim.Grant = claims[i].Grant // mutant: own-claim-is-not-known
			}
			s.claim.Resource, s.claim.Position = claims[i].Resource, claims[i].Position // but s.claimed is set by COMMIT
		}
		c.noteRun(t.states)
		run.grants = c.Grants
		if t.mayShare {
			t.takeSharers()
		}
		return txn, nil
	}
}

// noteOwnClaims remembers what became of claims that the transaction made. Without a COMMIT their positions are nobody's, and
// leases unclaimed; after a panic there is no err either. An answer from what was kept shows where the fences are.
func (t *transaction[Tx]) noteOwnClaims(err error) {
	m := t.leader.guard.sightings
	for _, s := range t.states {
		failed := err != nil || !s.claimed
		if failed && !t.recalled { // mutant: own-claim-that-failed-is-remembered
			s.claim.Position = storage.Position{}
		}
		m.note(s) // mutant: own-claim-is-not-remembered
		seen := m.of(s.claim.Grant.Resource)
		s.claimsInTx, s.releaseInBackground = false, seen.uncontested < keepLeaseAfter
		if failed {
			s.claim.Position = seen.position // mutant: own-claim-that-failed-forgets-what-was-seen
		}
	}
}

func (g *Guard[Tx]) limitWait(run *runContext) *time.Timer {
	limit := g.cfg.StoreTimeout // mutant: database-that-is-silent-keeps-the-lock
	return time.AfterFunc(limit, func() { run.end(run.locks.timeoutError) })
}

func (t *transaction[Tx]) runOps(run *runContext, txn storage.Txn[Tx]) error {
	run.bind(t.states, t.bounds)
	defer run.finish(nil)
	for _, c := range t.calls {
		if err := txn.Run(run, c.op); err != nil {
			return withCause(run, err)
		}
	}
	return nil
}

func (t *transaction[Tx]) moves(run *runContext) ([]storage.Move, error) {
	if t.leader.ReadOnly {
		return nil, nil
	}
	move := storage.Move{Ops: run.oneOp[:0]}
	asked := false
	for _, c := range t.calls {
		move.Ops = append(move.Ops, c.Record)
		asked = asked || c.receipt != nil
	}
	if once := t.leader.once; once != nil {
		data, err := t.leader.encodeResult()
		if err != nil {
			return nil, err
		}
		move.Kept = []storage.Kept{{Key: *once, Result: data}}
	}
	moves := run.oneMove[:0]
	for range t.states {
		if asked {
			move.Hash = new([32]byte)
		}
		moves = append(moves, move)
	}
	return moves, nil
}

// settleAndClaim settles what is in doubt under the grants, and claims those that need it. In a Hold it doesn't
// claim, because the Hold has read at the position of its first claim.
func (g *Guard[Tx]) settleAndClaim(ctx context.Context, states grantStates, inHold bool) error {
	var unclaimed grantStates
	for _, s := range states {
		if s.unresolved != nil || s.lock == nil {
			if err := g.settle(ctx, s); err != nil {
				return err
			}
		}
		if !s.claimed { // mutant: run-before-the-claim
			if inHold { // mutant: hold-claims-again
				return s.overtakenError()
			}
			unclaimed = append(unclaimed, s)
		}
	}
	if len(unclaimed) == 0 {
		return nil
	}
	return g.claim(ctx, unclaimed)
}

func (g *Guard[Tx]) claim(ctx context.Context, states grantStates) error {
	start := time.Now()
	step := g.locks.newContext(ctx, nil)
	defer step.finish(nil)
	defer g.limitWait(step).Stop()
	claims, err := g.store.Claim(step, states.claims(nil)...)
	took := time.Since(start)
	for i, claim := range claims {
		if claim != (storage.Claim{}) {
			states[i].noteLastUser(claim)
			states[i].setPosition(claim)
			g.report.claimed(ctx, claim.Grant, took)
		}
	}
	if err != nil {
		for _, s := range states {
			g.locks.correctReason(s, err) // mutant: claim-whose-reply-was-lost-is-good
		}
		return g.locks.raise(ctx, states, g.stepFailed(step, states, "claim", err))
	}
	return nil
}

// correctReason corrects the reason if the claim was rejected because the lock service went back: the grant that has the
// fence had claimed before this one was asked for, and has the higher token. Times can't show this, since the
// machine may have been paused before the claim. Where raise can help, the token is merely stale.
func (ls *localLocks) correctReason(s *grantState, err error) {
	r := rejectionOf(err, s.claim.Grant)
	if r == nil {
		return
	}
	_, raises := ls.locker.(fence.Raiser)
	switch {
	case raises && s.lease != nil:
		if r.Reason == storage.ReasonCollision {
			r.Reason = storage.ReasonStale
		}
	case r.Reason == storage.ReasonStale && s.superseder != nil && s.superseder.Compare(s.claim.Grant) > 0:
		r.Reason = storage.ReasonTokensWentBack
	}
}

// addRemedy completes r with what the lock service knows alone.
func (ls *localLocks) addRemedy(r *RejectedError) {
	keeper, ok := ls.locker.(fence.EpochKeeper)
	if !ok || !errors.Is(r, ErrWrongLockService) {
		return
	}
	to := r.Current.Epoch
	if r.Reason == storage.ReasonCollision || r.Reason == storage.ReasonTokensWentBack {
		to++
	}
	r.Remedy = keeper.EpochRemedy(r.Grant.Epoch, to)
}

func (g *Guard[Tx]) stepFailed(ctx context.Context, states grantStates, step string, err error) error {
	if !states.rejectedBy(err) {
		err = withCause(ctx, fmt.Errorf("guard: %s: %s: %w", names(states.grants()), step, err))
	}
	return g.noteRejection(ctx, states, err)
}

func (g *Guard[Tx]) noteRejection(ctx context.Context, states grantStates, err error) error {
	for _, s := range states {
		if rejection := rejectionOf(err, s.claim.Grant); rejection != nil && !s.claim.Looked {
			rejection.Travelled = rejection.Travelled || s.lock == nil && s.lease == nil
			if s.lock != nil || s.lease != nil {
				g.locks.addRemedy(rejection)
			}
			g.report.rejected(ctx, rejection)
			s.claimed = false
			s.rejected, s.unreported = rejection, false
			s.dead = s.dead || rejection.Reason != storage.ReasonOvertaken
		}
	}
	return err
}

// commit isn't bound to ctx, whose end must neither put a COMMIT in doubt nor keep it from being resolved.
func (g *Guard[Tx]) commit(ctx context.Context, states grantStates, txn storage.Txn[Tx], moves []storage.Move, o *options) error {
	detached := context.WithoutCancel(ctx) // mutant: commit-ends-with-the-callers-context
	for _, s := range states {
		s.claimed = false // until the outcome is known, the position isn't
	}
	bounded, cancel := context.WithTimeout(detached, g.cfg.StoreTimeout) // mutant: commit-without-a-bound
	defer cancel()
	claims, err := txn.Commit(bounded, moves)
	if err == nil {
		for i, s := range states {
			s.setPosition(claims[i])
		}
		return nil
	}
	if doubt, ok := errors.AsType[*storage.InDoubtError](err); ok { // mutant: doubt-is-taken-for-failure
		doubt.Err = g.nameTimeout(doubt.Err)
		return g.resolve(detached, states, o, doubt) // mutant: doubt-is-taken-for-success
	}
	for _, s := range states {
		s.claimed = !s.claimsInTx // nothing was committed, so the position is what it was; mutant: own-claim-that-failed-counts
	}
	return g.noteRejection(ctx, states, g.nameTimeout(err))
}

func (g *Guard[Tx]) nameTimeout(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w (guard.Config.StoreTimeout is %v)", err, g.cfg.StoreTimeout)
}

func (g *Guard[Tx]) resolve(ctx context.Context, states grantStates, o *options, doubt *storage.InDoubtError) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ResolveTimeout)
	defer cancel()
	unknown := &UnknownOutcomeError{
		Record: o.Record, Grants: states.grants(), Once: o.once != nil, Err: doubt.Err, inDoubt: doubt.InDoubt, resolve: g.store.Resolve,
	}
	g.sightings.addDoubt(unknown)
	start := time.Now()
	for tries := 1; ; tries++ {
		applied, err := g.store.Resolve(ctx, doubt.InDoubt)
		switch {
		case err == nil || errors.Is(err, ErrTxEnded):
			g.sightings.removeDoubt(unknown)
			g.report.resolved(ctx, unknown, applied, nil, time.Since(start))
			switch {
			case err != nil:
				return err
			case !applied:
				return &verdict{fmt.Errorf("guard: %s: COMMIT took no effect: %w", names(unknown.Grants), doubt.Err), !lasting(doubt.Err)}
			}
			for _, s := range states {
				s.noteCommitted(doubt.InDoubt)
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

// settle asks about what earlier calls left in doubt, and under the caller's grants also other calls. Without an
// answer the Guard gives up its own grant: once the next one has claimed, the transaction has committed or never
// will.
func (g *Guard[Tx]) settle(ctx context.Context, s *grantState) error {
	for {
		doubt := s.unresolved
		if doubt == nil && s.lock == nil {
			doubt = g.sightings.doubtUnder(s)
		}
		if doubt == nil {
			return nil
		}
		if err := g.settleOne(ctx, s, doubt); err != nil {
			return err
		}
	}
}

func (g *Guard[Tx]) settleOne(ctx context.Context, s *grantState, doubt *UnknownOutcomeError) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ResolveTimeout)
	defer cancel()
	start := time.Now()
	applied, err := doubt.Resolve(ctx)
	if errors.Is(err, ErrTxEnded) {
		err = nil
	}
	g.report.resolved(ctx, doubt, applied, err, time.Since(start))
	if err != nil {
		s.dead = true
		return g.stepFailed(ctx, grantStates{s}, "an earlier operation is unresolved", err)
	}
	g.sightings.removeDoubt(doubt)
	if applied && s.unresolved != nil { // else the claim returns the position
		s.noteCommitted(doubt.inDoubt)
	}
	s.unresolved = nil
	return nil
}
