package guard

import (
	"context"

	"github.com/fencekit/fencekit/storage"
)

// batchCall is a call with a storage.BatchOp and without Once. It shares a transaction with
// others: those that wait behind it for the same resource, and those on other resources that
// meet it in forming. Their operations may run again at any time: if anything fails, nothing
// has happened. Then the operation that failed runs by itself, and the others once more
// together; or each by itself if the store doesn't know which one it was. Those of one
// resource run in the order of its queue.
type batchCall[Tx any] struct {
	call *guardCall
	runs *runs
	op   storage.Op[Tx]
	ctx  context.Context // of the call
	line *line           // of its resource

	ready chan struct{} // closed when a call that waits in forming leads a group, or its group has ended
	leads bool          // it leads a group

	err   error     // how the call ends, unless it runs again
	after afterward // how it goes on
	again *waiter   // its place in the queue for another run, if a group took it from there
}

// afterward says how a call goes on after a group that took no effect.
type afterward int

const (
	ends       afterward = iota
	runsAlone            // it runs by itself
	runsShared           // it runs again, also with others
)

// runBatch runs b, which has the turn and the claim.
func (e *engine[Tx]) runBatch(ctx context.Context, b *batchCall[Tx]) error {
	gr := newBatchGroup(e, b)
	switch {
	case b.line.backoff.runsSingly():
		gr.of = ofOne
	case b.line.failed || e.forming == nil || e.forming.runsSingly():
		gr.of = ofQueue
	default:
		gr.of = ofSeveral
		if err := e.forming.join(ctx, b); err != nil {
			return err
		}
		if !b.leads {
			return e.afterGroup(ctx, b)
		}
	}
	err := gr.run(ctx)
	if gr.shared() || b.after != ends {
		return e.afterGroup(ctx, b)
	}
	b.line.failed = err != nil && ctx.Err() == nil
	return err
}

// afterGroup ends b's call as its group has ended, or runs b again.
func (e *engine[Tx]) afterGroup(ctx context.Context, b *batchCall[Tx]) error {
	if b.after == ends {
		return b.err
	}
	if b.again != nil {
		l, err := e.keeper.wait(ctx, b.line, b.again)
		if err != nil {
			return err
		}
		if b.again.taken {
			next := b.again.batch.(*batchCall[Tx])
			next.line = l
			return e.afterGroup(ctx, next)
		}
		b.call.lines = append(b.call.lines, l)
	}
	if b.after == runsShared {
		return e.runOnce(ctx, b.call, b.op, b.runs)
	}
	b.call.alone = true
	err := e.runOnce(ctx, b.call, b.op, b.runs)
	b.line.failed = err != nil && ctx.Err() == nil
	return err
}
