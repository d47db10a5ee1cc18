package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

type call[Tx any] struct {
	options
	op     storage.Op[Tx]
	guard  *Guard[Tx]
	ctx    context.Context // as Started returned it
	states grantStates
	own    transaction[Tx]

	held  held
	locks bool  // needs locks: it can't claim in its own transaction
	alone bool  // shares no further transaction
	ended error // after a shared transaction: what the call returns, or errRunsAgain
}

func (c *call[Tx]) observed(ctx context.Context, g *Guard[Tx], resources []string, run func() error) error {
	if c.once != nil {
		c.nameKey(resources)
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
	return c.observed(ctx, g, c.Resources, func() error {
		c.held.lines, c.held.resources = g.lines, c.Resources
		c.locks = g.claimer == nil || c.ReadOnly
		defer c.passOn()
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
		if err := c.take(nil); err != nil {
			return err
		}
		if err := c.begins(bounds{limit: c.guard.cfg.MaxRun}).run(); err != storage.ErrHeld {
			return err
		}
	}
}

// lockFreeRuns is how often a read runs without a lock, and is overtaken by moves, before it takes the lock.
const lockFreeRuns = 3

// runRead reads what the process doesn't own without a lock, unless moves overtake it again and again. What failed may
// have failed because it saw two positions, so that counts only if nothing has moved.
func (c *call[Tx]) runRead() error {
	if err := c.guard.lines.enter(); err != nil {
		return err
	}
	defer c.guard.lines.busy.Done()
	if c.guard.lines.owns(c.Resources) {
		return c.runAlone()
	}
	looked, err := c.look(true)
	for n := 0; n < lockFreeRuns && len(looked) > 0; n++ {
		c.states, c.Grants = looked, nil
		c.Runs++
		err := c.begins(bounds{limit: c.guard.cfg.MaxRun}).run()
		if err == nil {
			c.guard.memory.givenUp(looked...)
			if slices.ContainsFunc(looked, func(s *grantState) bool { return c.guard.memory.inDoubt(s.claim.Grant) }) {
				break // since it began
			}
		}
		// Of another failure of COMMIT the store knows whether to run again.
		checked := !c.own.sent || errors.Is(err, storage.ErrMoved) || errors.As(err, new(*storage.OpError))
		if err == nil || !checked || errors.Is(err, ErrTxEnded) || errors.Is(err, ErrStoreUnavailable) {
			return err
		}
		now, failed := c.look(false)
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

// look returns where the fences are, or if guess is true and nothing moved between the last two reads, where they were
// then. It returns nil if the read needs the lock: what has no fence yet, or went back, needs a claim, and a COMMIT in
// doubt may still arrive unless a higher grant has claimed (G6).
func (c *call[Tx]) look(guess bool) (grantStates, error) {
	g := c.guard
	claims := make([]storage.Claim, len(c.Resources))
	for i, resource := range c.Resources {
		past := g.memory.of(resource)
		claims[i].Grant.Resource = resource
		if guess = guess && past.still != nil; guess {
			claims[i] = *past.still
		}
		claims[i].Position = past.at
	}
	if !guess {
		step := g.lines.newContext(c.ctx, nil)
		defer step.finish(nil)
		defer g.bound(step).Stop()
		var err error
		if claims, err = g.store.Look(step, claims...); err != nil {
			return nil, withCause(step, fmt.Errorf("guard: %s: look: %w", strings.Join(c.Resources, ", "), err))
		}
	}
	states := make(grantStates, len(claims))
	for i, claim := range claims {
		if g.memory.inDoubt(claim.Grant) {
			return nil, nil
		}
		states[i] = &grantState{claim: claim, claimed: true}
	}
	return states, nil
}

// passOn lets go of leases of resources that other processes use too: they would have to ask for them.
func (c *call[Tx]) passOn() {
	if g := c.guard; g.claimer != nil && g.newHolder == nil && !c.ReadOnly {
		for _, l := range c.held.turns {
			if s := l.lease; s != nil && s.last != unknownUser {
				g.memory.givenUp(s)
				s.brief = g.memory.of(l.resource).alone < keepLeaseAfter
			}
		}
	}
	c.held.passOn(c.ctx, 0)
}

// take takes what the call's transaction needs: turns, and leases unless it claims without, which are claimed unless it
// does that.
func (c *call[Tx]) take(offer any) error {
	g := c.guard
	if !c.locks && g.newHolder == nil {
		if err := c.held.take(c.ctx, offer); err != nil {
			return err
		}
		if c.states = c.held.states; c.states.fresh() {
			for _, s := range c.states {
				s.own, s.brief = true, true
			}
			return nil
		}
	} else if !c.locks {
		if err := c.held.takeTurns(c.ctx, offer); err != nil {
			return err
		}
		if c.states = c.ownStates(); c.states != nil {
			return nil
		}
	}
	err := g.take(c.ctx, &c.held, offer)
	c.noteRun(c.held.states)
	return err
}

// ownStates returns nil if a resource is kept, or if no other process uses any, so that all can be kept.
func (c *call[Tx]) ownStates() grantStates {
	g := c.guard
	if slices.ContainsFunc(c.held.turns, func(l *line) bool { return l.lease != nil }) {
		return nil
	}
	states, holder := grantStates(c.held.state[:0]), g.newHolder()
	keeps := g.cfg.KeepFor > 0
	for _, l := range c.held.turns {
		past, s := g.memory.of(l.resource), &grantState{line: l, own: true}
		keeps = keeps && past.alone >= keepAfter
		s.claim.Grant.Resource, s.claim.Grant.Holder = l.resource, holder
		s.claim.Position = past.at // mutant: own-claim-forgets-what-was-seen
		states = append(states, s)
	}
	if keeps {
		return nil
	}
	return states
}

func (c *call[Tx]) runUnder(states grantStates, b bounds) error {
	c.noteRun(states)
	if err := c.guard.ready(c.ctx, states, b.hold != nil); err != nil {
		return err
	}
	return c.begins(b).run()
}

func (c *call[Tx]) noteRun(states grantStates) {
	if len(states) > 0 {
		c.states, c.Grants = states, states.grants()
		c.Runs++
	}
}

// take acquires what is missing in h and claims it (G1). If an operator raised the epoch while the call waited, the
// claim is rejected, and take acquires another grant; if that has the same epoch, the lock service itself is
// behind. So it does once more if the lock service had lost its count of tokens and was raised. If only the
// claim failed, h has its states.
func (g *Guard[Tx]) take(ctx context.Context, h *held, offer any) error {
	var behind int64
	var raised bool
	for {
		if err := h.take(ctx, offer); err != nil {
			return err
		}
		err := g.ready(ctx, h.states, false)
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

// transaction is that of one call, or of several with batches, which wait in the queue of the leader's resource when
// it begins.
type transaction[Tx any] struct {
	leader *call[Tx]
	bounds bounds
	shares bool // takes calls from the queue

	states grantStates
	calls  []*call[Tx] // the leader, and those of taken
	taken  []*waiter
	sent   bool

	answered bool         // by what was kept: a transaction with claims of its own has not made them
	onlyCall [1]*call[Tx] // memory for a single call
}

func (c *call[Tx]) begins(b bounds) *transaction[Tx] {
	t := &c.own
	*t = transaction[Tx]{leader: c, bounds: b, states: c.states, onlyCall: [1]*call[Tx]{c}}
	t.calls = t.onlyCall[:]
	c.BatchSize, c.BatchPlace = 1, 0
	return t
}

func (t *transaction[Tx]) run() (err error) {
	c, begin, own := t.leader, t.begin, t.states[0].own
	if own {
		begin = t.beginOwn
		defer func() { t.noteOwn(err) }()
	}
	grants := c.Grants
	if grants == nil || own { // it has none yet, or reads without
		grants = t.states.grants()
	}
	run := c.guard.lines.newContext(c.ctx, grants)
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
				t.states[i].claim.Position, t.answered = position, true
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
		t.giveReceipts(moves)
	}
	return err
}

func (t *transaction[Tx]) giveReceipts(moves []storage.Move) {
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
	defer c.guard.bound(run).Stop()
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
	defer g.bound(run).Stop()
	begin := g.store.Begin
	if t.leader.ReadOnly {
		begin = g.store.BeginReadOnly
	}
	if txn, err = begin(run, t.states.claims(run.claim[:0])...); err != nil {
		return nil, g.stepFailed(run, t.states, "begin", err)
	}
	if t.shares {
		t.takeQueue()
	}
	return txn, nil
}

// beginOwn waits for transactions of other processes for as long as the call's context lasts, and for each answer for
// StoreTimeout.
func (t *transaction[Tx]) beginOwn(run *runContext) (storage.Txn[Tx], error) {
	c, g := t.leader, t.leader.guard
	defer context.AfterFunc(g.lines.closing, func() { run.end(ErrClosed) })()
	for waited := false; ; waited = true {
		txn, claims, err := g.claimer.BeginOwn(run, g.cfg.StoreTimeout, t.states.claims(run.claim[:0])...)
		switch {
		case err == storage.ErrHeld:
			c.locks, c.held.atOnce = true, g.newHolder != nil // mutant: own-claim-beside-a-lock
			for _, s := range t.states {
				s.last = anotherProcess
			}
			return nil, err
		case err == storage.ErrBusy && run.Err() == nil: // mutant: own-claim-gives-up
			continue
		case err == storage.ErrBusy, waited && run.Err() != nil && errors.Is(err, run.Err()):
			return nil, withCause(run, fmt.Errorf("guard: %s: gave up waiting behind a call of another process: %w", names(t.states.grants()), run.Err()))
		case err != nil:
			if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrStoreUnavailable) {
				run.end(g.lines.timeout) // unless it has ended
			}
			c.noteRun(t.states)
			return nil, g.stepFailed(run, t.states, "claim", err)
		}
		for i, s := range t.states {
			s.found(claims[i])
			if s.lease == nil {
				s.claim.Grant = claims[i].Grant // mutant: own-claim-is-not-known
			}
			s.claim.Resource, s.claim.Position = claims[i].Resource, claims[i].Position // but s.claimed is set by COMMIT
		}
		c.noteRun(t.states)
		run.grants = c.Grants
		if t.shares {
			t.takeQueue()
		}
		return txn, nil
	}
}

// noteOwn remembers what became of claims that the transaction made. Without a COMMIT their positions are nobody's, and
// leases unclaimed; after a panic there is no err either. An answer from what was kept shows where the fences are.
func (t *transaction[Tx]) noteOwn(err error) {
	m := t.leader.guard.memory
	for _, s := range t.states {
		failed := err != nil || !s.claimed
		if failed && !t.answered { // mutant: own-claim-that-failed-is-remembered
			s.claim.Position = storage.Position{}
		}
		m.givenUp(s) // mutant: own-claim-is-not-remembered
		past := m.of(s.claim.Grant.Resource)
		s.own, s.brief = false, past.alone < keepLeaseAfter
		if failed {
			s.claim.Position = past.at // mutant: own-claim-that-failed-forgets-what-was-seen
		}
	}
}

func (g *Guard[Tx]) bound(run *runContext) *time.Timer {
	limit := g.cfg.StoreTimeout // mutant: database-that-is-silent-keeps-the-lock
	return time.AfterFunc(limit, func() { run.end(run.lines.timeout) })
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
	move := storage.Move{Ops: run.op[:0]}
	asked := false
	for _, c := range t.calls {
		move.Ops = append(move.Ops, c.Record)
		asked = asked || c.receipt != nil
	}
	if once := t.leader.once; once != nil {
		data, err := t.leader.keep()
		if err != nil {
			return nil, err
		}
		move.Kept = []storage.Kept{{Key: *once, Result: data}}
	}
	moves := run.move[:0]
	for range t.states {
		if asked {
			move.Hash = new([32]byte)
		}
		moves = append(moves, move)
	}
	return moves, nil
}

// ready settles what is in doubt under the grants (G6), and claims those that need it (G1). In a Hold it doesn't
// claim, because the Hold has read at the position of its first claim.
func (g *Guard[Tx]) ready(ctx context.Context, states grantStates, inHold bool) error {
	var unclaimed grantStates
	for _, s := range states {
		if s.unresolved != nil || s.line == nil {
			if err := g.settle(ctx, s); err != nil {
				return err
			}
		}
		if !s.claimed { // mutant: run-before-the-claim
			if inHold { // mutant: hold-claims-again
				return s.overtaken()
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
	step := g.lines.newContext(ctx, nil)
	defer step.finish(nil)
	defer g.bound(step).Stop()
	claims, err := g.store.Claim(step, states.claims(nil)...)
	took := time.Since(start)
	for i, claim := range claims {
		if claim != (storage.Claim{}) {
			states[i].found(claim)
			states[i].moved(claim)
			g.report.claimed(ctx, claim.Grant, took)
		}
	}
	if err != nil {
		for _, s := range states {
			g.lines.nameReason(s, err) // mutant: claim-whose-reply-was-lost-is-good
		}
		return g.lines.raise(ctx, states, g.stepFailed(step, states, "claim", err))
	}
	return nil
}

// nameReason corrects the reason if the claim was rejected because the lock service went back: the grant that has the
// fence had claimed before this one was asked for, and has the higher token. Times can't show this, since the
// machine may have been paused before the claim. Where raise can help, the token is merely stale.
func (t *lines) nameReason(s *grantState, err error) {
	r := rejectionOf(err, s.claim.Grant)
	if r == nil {
		return
	}
	_, raises := t.locker.(fence.Raiser)
	switch {
	case raises && s.lease != nil:
		if r.Reason == storage.ReasonCollision {
			r.Reason = storage.ReasonStale
		}
	case r.Reason == storage.ReasonStale && s.superseder != nil && s.superseder.Compare(s.claim.Grant) > 0:
		r.Reason = storage.ReasonTokensWentBack
	}
}

// nameRemedy completes r with what the lock service knows alone.
func (t *lines) nameRemedy(r *RejectedError) {
	keeper, ok := t.locker.(fence.EpochKeeper)
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
			rejection.Travelled = rejection.Travelled || s.line == nil && s.lease == nil
			if s.line != nil || s.lease != nil {
				g.lines.nameRemedy(rejection)
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
			s.moved(claims[i])
		}
		return nil
	}
	if doubt, ok := errors.AsType[*storage.InDoubtError](err); ok { // mutant: doubt-is-taken-for-failure
		doubt.Err = g.nameLimit(doubt.Err)
		return g.resolve(detached, states, o, doubt) // mutant: doubt-is-taken-for-success
	}
	for _, s := range states {
		s.claimed = !s.own // nothing was committed, so the position is what it was; mutant: own-claim-that-failed-counts
	}
	return g.noteRejection(ctx, states, g.nameLimit(err))
}

func (g *Guard[Tx]) nameLimit(err error) error {
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
	g.memory.leaveDoubt(unknown)
	start := time.Now()
	for tries := 1; ; tries++ {
		applied, err := g.store.Resolve(ctx, doubt.InDoubt)
		switch {
		case err == nil || errors.Is(err, ErrTxEnded):
			g.memory.settled(unknown)
			g.report.resolved(ctx, unknown, applied, nil, time.Since(start))
			switch {
			case err != nil:
				return err
			case !applied:
				return &verdict{fmt.Errorf("guard: %s: COMMIT took no effect: %w", names(unknown.Grants), doubt.Err), !lasting(doubt.Err)}
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

// settle asks about what earlier calls left in doubt, and under the caller's grants also other calls. Without an
// answer the Guard gives up its own grant: once the next one has claimed, the transaction has committed or never
// will.
func (g *Guard[Tx]) settle(ctx context.Context, s *grantState) error {
	for {
		doubt := s.unresolved
		if doubt == nil && s.line == nil {
			doubt = g.memory.doubtUnder(s)
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
	g.memory.settled(doubt)
	if applied && s.unresolved != nil { // else the claim returns the position
		s.applied(doubt.inDoubt)
	}
	s.unresolved = nil
	return nil
}
