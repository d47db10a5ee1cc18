package guard

import (
	"context"

	"github.com/fencekit/fencekit/storage"
)

// batchCall is a call with a storage.BatchOp and without Once. It shares a transaction with
// others: those that wait behind it for the same resource, and those on other resources that
// meet it in forming. If the transaction fails, it has taken no effect, so their operations may
// run again: the one that failed alone, and the others together; or each alone if the store
// doesn't know which one it was. Those of one resource run in the order of its queue.
type batchCall[Tx any] struct {
	call *guardCall
	runs *runs
	op   storage.Op[Tx]
	ctx  context.Context // of the call
	line *line           // of its resource

	state batchState
	ready chan struct{} // closed when a call that waited in forming has another state; nil if it never waited
	err   error         // what the call returns if state is ends
	again *waiter       // its place in the queue, if it runs again and doesn't have the turn
}

// batchState says how a batchCall goes on.
type batchState int

const (
	waits      batchState = iota // for the turn, in forming, or for the end of its group
	leads                        // a group
	ends                         // with batchCall.err
	runsAlone                    // again, in a transaction of its own
	runsShared                   // again, and may share its transaction
)

// runBatch runs b, which has the turn and the claim.
func (e *engine[Tx]) runBatch(ctx context.Context, b *batchCall[Tx]) error {
	gr := newBatchGroup(e, b)
	switch {
	case b.line.backoff.nextAlone():
		gr.of = ofOne
	case b.line.failed || e.forming == nil || e.forming.nextAlone():
		gr.of = ofQueue
	default:
		gr.of = ofSeveral
		if err := e.forming.join(ctx, b); err != nil {
			return err
		}
		if b.state == leads && b.ready != nil && !e.keeper.usable(b.call.owned[0]) {
			e.forming.leave(false)
			b.state = runsAlone // it has waited for too long
		}
		if b.state != leads {
			return e.afterGroup(ctx, b)
		}
	}
	err := gr.run(ctx)
	if gr.shared() {
		return e.afterGroup(ctx, b)
	}
	b.line.failed = err != nil && ctx.Err() == nil
	return err
}

// afterGroup ends b's call as its group has ended, or runs b again.
func (e *engine[Tx]) afterGroup(ctx context.Context, b *batchCall[Tx]) error {
	if b.state == ends {
		return b.err
	}
	if b.again != nil {
		l, err := e.keeper.wait(ctx, b.line, b.again)
		if err != nil {
			return err
		}
		if b.again.state == wasTaken {
			next := b.again.batch.(*batchCall[Tx])
			next.line = l
			return e.afterGroup(ctx, next)
		}
		b.call.lines = append(b.call.lines, l)
	}
	if b.state == runsShared {
		return e.runOnce(ctx, b.call, b.op, b.runs)
	}
	b.call.alone = true
	err := e.runOnce(ctx, b.call, b.op, b.runs)
	b.line.failed = err != nil && ctx.Err() == nil
	return err
}
