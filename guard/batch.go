package guard

import (
	"cmp"
	"context"
	"errors"

	"github.com/fencekit/fencekit/storage"
)

// next is how a call with a storage.BatchOp and without Once goes on. It shares a transaction with
// others: those that wait behind it for the same resource, and those on other resources that
// meet it in forming. If the transaction fails, it has taken no effect, so their operations may
// run again: the one that failed alone, and the others together; or each alone if the store
// doesn't know which one it was. Those of one resource run in the order of its queue.
type next struct {
	how batchEnd
	err error // what the call returns if it ends
}

// batchEnd says how a call goes on after a transaction that it shared.
type batchEnd int

const (
	ends       batchEnd = iota
	runsAlone           // again, in a transaction of its own
	runsShared          // again, and may share its transaction
)

// runBatch runs a batch once, as its caller sees it: in transactions that it shares, until it ends with one of
// them or has to run alone.
func (c *call[Tx]) runBatch() error {
	for {
		switch n := c.share(); n.how {
		case ends:
			return n.err
		case runsAlone:
			c.alone = true
			return c.noteAlone(c.runOnce())
		}
	}
}

// noteAlone notes with what error c has run in a transaction of its own, and returns it.
func (c *call[Tx]) noteAlone(err error) error {
	if len(c.held.states) > 0 {
		c.held.states[0].backoff.aloneFailed = err != nil && c.ctx.Err() == nil
	}
	return err
}

// share runs c in another call's transaction, or in its own, which others may share.
func (c *call[Tx]) share() next {
	g := c.guard
	c.next = next{}
	if len(c.held.turns) == 0 {
		l, err := g.lines.takeTurn(c.ctx, c.Resources[0], c)
		switch {
		case err != nil:
			return next{err: err}
		case l == nil:
			return c.next
		}
		c.held.turns = append(c.held.turn[:0], l)
		if c.next.how == runsAlone { // it was in a group that has failed
			return c.next
		}
	}
	if err := g.take(c.ctx, &c.held); err != nil {
		c.noteRun(c.held.states)
		return next{err: err}
	}
	backoff := &c.held.states[0].backoff
	if backoff.nextAlone() {
		c.noteRun(c.held.states)
		return next{err: c.noteAlone(c.attempt(bounds{states: c.states, limit: g.cfg.MaxRun}))}
	}
	gr := &batchGroup[Tx]{guard: g, leader: c, parts: []part[Tx]{{calls: []*call[Tx]{c}}}, calls: 1}
	if g.forming != nil && !backoff.aloneFailed {
		w, waited := g.forming.join(c.ctx, c)
		gr.several = w != nil
		switch {
		case w == nil:
		case w.got == theOffer:
			return c.next
		case w.got == nothing:
			return next{err: cmp.Or(w.failure, endError(c.ctx))}
		case waited && !g.lines.usable(c.held.states[0]): // it has waited for too long
			g.forming.leave(false)
			return next{how: runsAlone}
		}
	}
	err := gr.run()
	if gr.shared() {
		return c.next
	}
	return next{err: c.noteAlone(err)}
}

// batchGroup is a transaction that calls with batches share: those of one resource's queue,
// and those on other resources whose turns their calls had when the transaction began. The
// call that leads it waits for nothing but the database, and holds the turn at its own
// resource only. So when the group has failed, no call waits with another one's turn (L2).
type batchGroup[Tx any] struct {
	guard   *Guard[Tx]
	leader  *call[Tx]
	several bool // it takes calls that wait in forming, too, with those in their queues

	parts    []part[Tx] // the leader's first
	calls    int        // how many all parts have
	gathered bool       // it has taken calls from forming, or none were there
	sent     bool       // COMMIT may have been sent
}

// part is what a group has of one resource: the call that has the turn and the claim, and
// behind it those that were taken from its queue.
type part[Tx any] struct {
	calls []*call[Tx]
	first *waiter   // of the first call, which was in forming; nil for the leader
	taken []*waiter // of the other calls
}

// shared reports whether several calls are in the group.
func (gr *batchGroup[Tx]) shared() bool { return gr.calls > 1 }

// begin begins the transaction. It takes the other calls once the store has a connection:
// until then more can come, and those whose context ends can leave.
func (gr *batchGroup[Tx]) begin(run *runContext) (txn storage.Txn[Tx], states grantStates, err error) {
	defer gr.guard.bound(run).Stop()
	if gr.several {
		txn, err = gr.guard.groups.BeginGroup(run, func() []storage.Claim {
			gr.gather()
			gr.takeQueues()
			return gr.states().claims()
		})
	} else if txn, err = gr.guard.store.Begin(run, gr.states().claims()...); err == nil {
		gr.takeQueues()
	}
	states = gr.noteRuns()
	if err != nil {
		return nil, states, gr.guard.stepFailed(run, states, "begin", err)
	}
	return txn, states, nil
}

// gather takes the calls that wait in forming, but for those whose context has ended and
// those whose lease no other call may use any more.
func (gr *batchGroup[Tx]) gather() {
	gr.gathered = true
	for _, w := range gr.guard.forming.take(maxBatchCalls - gr.calls) {
		c := w.offer.(*call[Tx])
		switch err := endError(c.ctx); {
		case err != nil:
			w.wake(nothing, err)
		case !gr.guard.lines.usable(c.held.states[0]):
			c.next.how = runsAlone
			w.wake(theOffer, nil)
		default:
			gr.parts = append(gr.parts, part[Tx]{calls: []*call[Tx]{c}, first: w})
			gr.calls++
		}
	}
}

// takeQueues takes calls from the queues of the group's resources.
func (gr *batchGroup[Tx]) takeQueues() {
	for i := range gr.parts {
		p := &gr.parts[i]
		p.taken = gr.guard.lines.takeWaiting(p.calls[0].held.turns[0], maxBatchCalls-gr.calls)
		for _, w := range p.taken {
			p.calls = append(p.calls, w.offer.(*call[Tx]))
		}
		gr.calls += len(p.taken)
	}
}

// states returns those of the group's grants, in the order of its parts.
func (gr *batchGroup[Tx]) states() grantStates {
	states := make(grantStates, len(gr.parts))
	for i, p := range gr.parts {
		states[i] = p.calls[0].held.states[0]
	}
	return states
}

// run runs the group, and tells the calls other than the leader what became of it. It
// returns the same for the leader.
func (gr *batchGroup[Tx]) run() (outcome error) {
	outcome = errStoreGone
	defer func() { // also if the store panics
		if outcome == errStoreGone && gr.sent {
			outcome = &UnknownOutcomeError{Grants: gr.states().grants(), Err: errStoreGone, AskErr: errStoreGone, resolve: resolveGone}
		}
		if gr.several {
			gr.guard.forming.leave(gr.gathered)
		}
		if gr.shared() {
			gr.end(outcome)
		}
	}()
	return gr.runOnce()
}

// runOnce runs the calls of the group in one transaction.
func (gr *batchGroup[Tx]) runOnce() error {
	g, ctx := gr.guard, gr.leader.ctx
	run := g.lines.newContext(ctx, gr.leader.held.states.grants())
	defer run.finish(nil)
	txn, states, err := gr.begin(run)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx)
	if err := gr.runAll(run, states, txn); err != nil {
		return g.noteRejection(ctx, states, withCause(run, err))
	}
	if !gr.shared() && ctx.Err() != nil {
		return endError(ctx)
	}
	gr.sent = true
	return g.commit(ctx, states, txn, gr.moves(), &gr.leader.options)
}

// noteRuns notes for each call that a run of it has begun, and returns the states of the
// group's grants.
func (gr *batchGroup[Tx]) noteRuns() grantStates {
	place := 0
	for _, p := range gr.parts {
		for _, c := range p.calls {
			c.noteRun(p.calls[0].held.states)
			c.BatchSize, c.BatchPlace = gr.calls, place
			place++
		}
	}
	return gr.states()
}

// runAll runs the operations of all calls in txn.
func (gr *batchGroup[Tx]) runAll(run *runContext, states grantStates, txn storage.Txn[Tx]) error {
	run.bind(bounds{states: states, limit: gr.guard.cfg.MaxRun})
	defer run.finish(nil)
	for i, p := range gr.parts {
		ctx := run
		if i > 0 { // each operation sees the grant of its own resource
			ctx = &runContext{Context: run, lines: run.lines, grants: p.calls[0].Grants}
		}
		for _, c := range p.calls {
			if err := txn.Run(ctx, c.op); err != nil {
				return err
			}
		}
	}
	return nil
}

// moves returns what the group writes for each resource: the operations of its own calls.
func (gr *batchGroup[Tx]) moves() []storage.Move {
	moves := make([]storage.Move, len(gr.parts))
	for i, p := range gr.parts {
		for _, c := range p.calls {
			moves[i].Ops = append(moves[i].Ops, c.Record)
		}
	}
	return moves
}

// end tells each call how it goes on after the group has ended with outcome. Calls that were taken
// from a queue and run again get the first places in it, where another group may take them unless they are
// to run alone.
func (gr *batchGroup[Tx]) end(outcome error) {
	failed := tookNoEffect(outcome)
	blamed := gr.blamed(outcome)
	if len(gr.parts) > 1 {
		gr.guard.forming.noteEnd(failed, gr.calls, blamed != nil)
	}
	for _, p := range gr.parts {
		for _, c := range p.calls {
			c.setEnd(outcome, blamed)
		}
		s := p.calls[0].held.states[0]
		if failed {
			s.unreported = true // its calls run again
		}
		if !failed || len(gr.parts) == 1 {
			s.backoff.noteEnd(failed, len(p.calls), blamed != nil)
		}
		for i, w := range p.taken {
			if p.calls[i+1].next.how == runsAlone {
				w.offer = nil
			}
		}
		gr.guard.lines.endTaken(p.calls[0].held.turns[0], p.taken, failed)
		if p.first != nil {
			p.first.wake(theOffer, nil)
		}
	}
}

// blamed returns the call whose operation made the group fail, if the store knows it.
func (gr *batchGroup[Tx]) blamed(outcome error) *call[Tx] {
	var failed *storage.OpError
	if !errors.As(outcome, &failed) {
		return nil
	}
	n := failed.Number
	for _, p := range gr.parts {
		if n < len(p.calls) {
			return p.calls[n]
		}
		n -= len(p.calls)
	}
	return nil
}

// setEnd notes how c goes on after its group has ended with outcome. blamed is the call
// whose operation made the group fail, or nil.
func (c *call[Tx]) setEnd(outcome error, blamed *call[Tx]) {
	switch {
	case !tookNoEffect(outcome):
		c.next = next{err: outcome}
	case blamed == nil || blamed == c:
		c.next = next{how: runsAlone}
	default:
		c.next = next{how: runsShared}
	}
	var unknown *UnknownOutcomeError
	if errors.As(outcome, &unknown) {
		own := *unknown
		own.Record, own.Grants = c.Record, c.Grants
		c.next.err = &own
	}
}

// tookNoEffect reports whether a transaction that ended with err took no effect and never
// will. The calls that shared it then run again.
func tookNoEffect(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrTxEnded)
}

// errStoreGone is why the outcome of a COMMIT can't be learned.
var errStoreGone = errors.New("guard: the store panicked, or ended its goroutine, at COMMIT")

func resolveGone(context.Context, storage.InDoubt) (bool, error) { return false, errStoreGone }
