package guard

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/storage"
)

// batchCall is a call with a storage.BatchOp and without Once. Those that wait for the same
// resource share one transaction. Their operations may run again at any time: if anything
// fails, nothing has happened, and each runs by itself, in the order of the queue.
type batchCall[Tx any] struct {
	call *guardCall
	runs *runs
	op   storage.Op[Tx]

	err   error   // how the call ends
	again *waiter // its place in the queue, to run by itself; nil if the call ends
}

// maxBatchCalls bounds how many share a transaction, and maxSingly for how many calls a
// resource has no such transaction after one has failed.
const (
	maxBatchCalls = 64
	maxSingly     = 256
)

// runBatches runs b, which has the turn and the claim, together with the calls of taken,
// which have been taken from the queue and wait for the outcome.
func (e *engine[Tx]) runBatches(ctx context.Context, b *batchCall[Tx], taken []*waiter) error {
	calls := []*batchCall[Tx]{b}
	for _, w := range taken {
		calls = append(calls, w.batch.(*batchCall[Tx]))
	}
	outcome := e.share(ctx, calls, taken)
	if !runsSingly(outcome) {
		return b.ended(outcome)
	}
	b.call.alone = true
	return e.runOnce(ctx, b.call, b.op, b.runs)
}

// share runs calls in one transaction, and tells those of taken what became of it. They may
// have to run by themselves: then they get the first places in the queue.
func (e *engine[Tx]) share(ctx context.Context, calls []*batchCall[Tx], taken []*waiter) (outcome error) {
	states, l := calls[0].call.states, calls[0].call.lines[0]
	var move storage.Move
	for _, c := range calls {
		c.call.Grants = states.grants()
		c.call.Runs++
		move.Ops = append(move.Ops, c.runs.record)
	}
	sent := false
	outcome = errStoreGone
	defer func() { // also if the store panics
		if outcome == errStoreGone && sent {
			outcome = &UnknownOutcomeError{Grants: states.grants(), Err: errStoreGone, AskErr: errStoreGone, resolve: resolveGone}
		}
		var again []*waiter
		for _, c := range calls[1:] {
			if c.err = c.ended(outcome); runsSingly(outcome) {
				c.again = &waiter{ready: make(chan struct{})}
				again = append(again, c.again)
			}
		}
		e.keeper.putFirst(l, again)
		e.keeper.wakeTaken(l, taken, runsSingly(outcome))
	}()
	outcome = e.shareOnce(ctx, states, calls, move, &sent)
	return outcome
}

// shareOnce runs calls in one transaction.
func (e *engine[Tx]) shareOnce(ctx context.Context, states grantStates, calls []*batchCall[Tx], move storage.Move, sent *bool) error {
	run := newRunContext(ctx)
	run.guard, run.grants = e.key, calls[0].call.Grants
	e.keeper.contexts.add(run)
	defer run.finish(nil)
	txn, err := e.begin(run, states)
	if err != nil {
		return err
	}
	defer txn.Rollback(ctx)
	e.keeper.bind(run, e.bounds(&calls[0].call.heldLocks))
	defer run.unbind(nil)
	for _, c := range calls {
		if err := txn.Run(run, c.op); err != nil {
			return e.noteRejection(states, withCause(run, err))
		}
	}
	run.unbind(nil)
	*sent = true
	return e.commit(ctx, states, txn, calls[0].runs.options, move)
}

// runsSingly reports whether calls run by themselves after a transaction that they shared has
// ended with err: whenever it took no effect.
func runsSingly(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrTxEnded)
}

// ended returns how c's call ends if the transaction did so with outcome.
func (c *batchCall[Tx]) ended(outcome error) error {
	var unknown *UnknownOutcomeError
	if !errors.As(outcome, &unknown) {
		return outcome
	}
	own := *unknown
	own.Record = c.runs.record
	return &own
}

// await waits for the outcome of the transaction that another call has taken c into.
func (e *engine[Tx]) await(ctx context.Context, c *batchCall[Tx], l *line) error {
	if c.again == nil {
		return c.err
	}
	c.call.alone = true
	if _, err := e.keeper.wait(ctx, l, c.again); err != nil {
		return err
	}
	c.call.lines = append(c.call.lines, l)
	return e.runOnce(ctx, c.call, c.op, c.runs)
}
