package guard

import (
	"context"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// batchGroup is a transaction that calls with batches share: those of one resource's queue,
// and those on other resources whose turns their calls had when the transaction began. The
// call that leads it waits for nothing but the database, and holds the turn at its own
// resource only. So when the group has failed, no call waits with another one's turn (L2).
type batchGroup[Tx any] struct {
	engine *engine[Tx]
	leader *batchCall[Tx]
	of     groupOf

	parts    []part[Tx] // the leader's first
	calls    int        // how many all parts have
	gathered bool       // it has taken calls from forming, or none were there
	sent     bool       // COMMIT may have been sent
}

// groupOf says which calls a group may have.
type groupOf int

const (
	ofOne     groupOf = iota // the leader alone
	ofQueue                  // the leader, and calls in the queue of its resource
	ofSeveral                // the same, and calls that wait in forming, with those in their queues
)

// part is what a group has of one resource: the call that has the turn and the claim, and
// behind it those that were taken from its queue.
type part[Tx any] struct {
	calls []*batchCall[Tx]
	taken []*waiter // of the calls behind the first
}

// maxBatchCalls bounds how many calls share a transaction.
const maxBatchCalls = 64

func newBatchGroup[Tx any](e *engine[Tx], leader *batchCall[Tx]) *batchGroup[Tx] {
	return &batchGroup[Tx]{engine: e, leader: leader, parts: []part[Tx]{{calls: []*batchCall[Tx]{leader}}}, calls: 1}
}

// shared reports whether several calls are in the group.
func (gr *batchGroup[Tx]) shared() bool { return gr.calls > 1 }

// begin begins the transaction. It takes the other calls once the store has a connection:
// until then more can come, and those whose context ends can leave.
func (gr *batchGroup[Tx]) begin(run *runContext) (storage.Txn[Tx], error) {
	e := gr.engine
	defer e.steps.stop(e.steps.start(run))
	if gr.of == ofSeveral {
		return e.groups.BeginGroup(run, func() []storage.Claim {
			gr.gather()
			gr.takeQueues()
			return gr.states().claims()
		})
	}
	txn, err := e.store.Begin(run, gr.states().claims()...)
	if err == nil && gr.of == ofQueue {
		gr.takeQueues()
	}
	return txn, err
}

// gather takes the calls that wait in forming, but for those whose context has ended and
// those whose ownership no other call may use any more.
func (gr *batchGroup[Tx]) gather() {
	gr.gathered = true
	for _, b := range gr.engine.forming.take(maxBatchCalls - gr.calls) {
		switch err := endError(b.ctx); {
		case err != nil:
			b.leftOut(ends, err)
		case !gr.engine.keeper.usable(b.call.owned[0]):
			b.leftOut(runsAlone, nil)
		default:
			gr.parts = append(gr.parts, part[Tx]{calls: []*batchCall[Tx]{b}})
			gr.calls++
		}
	}
}

// takeQueues takes calls from the queues of the group's resources.
func (gr *batchGroup[Tx]) takeQueues() {
	for i := range gr.parts {
		p := &gr.parts[i]
		p.taken = gr.engine.keeper.takeBatches(p.calls[0].line, maxBatchCalls-gr.calls)
		for _, w := range p.taken {
			p.calls = append(p.calls, w.batch.(*batchCall[Tx]))
		}
		gr.calls += len(p.taken)
	}
}

// states returns those of the group's grants, in the order of its parts.
func (gr *batchGroup[Tx]) states() grantStates {
	states := make(grantStates, len(gr.parts))
	for i, p := range gr.parts {
		states[i] = p.calls[0].call.states[0]
	}
	return states
}

// run runs the group, and tells the calls other than the leader what became of it. It
// returns the same for the leader.
func (gr *batchGroup[Tx]) run(ctx context.Context) (outcome error) {
	outcome = errStoreGone
	defer func() { // also if the store panics
		if outcome == errStoreGone && gr.sent {
			outcome = &UnknownOutcomeError{Grants: gr.states().grants(), Err: errStoreGone, AskErr: errStoreGone, resolve: resolveGone}
		}
		if gr.of == ofSeveral {
			gr.engine.forming.leave(gr.gathered)
		}
		if gr.shared() {
			gr.tell(outcome)
		}
	}()
	return gr.runOnce(ctx)
}

// runOnce runs the calls of the group in one transaction.
func (gr *batchGroup[Tx]) runOnce(ctx context.Context) error {
	e := gr.engine
	run := newRunContext(ctx)
	run.guard, run.grants = e.key, gr.parts[0].grants()
	e.keeper.contexts.add(run)
	defer run.finish(nil)
	txn, err := gr.begin(run)
	states := gr.noteRuns()
	if err != nil {
		return e.stepFailed(run, states, "begin", err)
	}
	defer txn.Rollback(ctx)
	if err := gr.runAll(run, txn); err != nil {
		return e.noteRejection(ctx, states, withCause(run, err))
	}
	if !gr.shared() && ctx.Err() != nil {
		return endError(ctx)
	}
	gr.sent = true
	return e.commitMoves(ctx, states, txn, gr.leader.runs.options, gr.moves())
}

// noteRuns notes for each call that a run of it has begun, and returns the states of the
// group's grants.
func (gr *batchGroup[Tx]) noteRuns() grantStates {
	place := 0
	for _, p := range gr.parts {
		grants := p.grants()
		for _, b := range p.calls {
			b.call.Grants = grants
			b.call.Runs++
			b.call.inBatch(gr.calls, place)
			place++
		}
	}
	return gr.states()
}

func (p part[Tx]) grants() []fence.Grant { return p.calls[0].call.states.grants() }

// runAll runs the operations of all calls in txn.
func (gr *batchGroup[Tx]) runAll(run *runContext, txn storage.Txn[Tx]) error {
	k := gr.engine.keeper
	var owned []*ownership
	for _, p := range gr.parts {
		owned = append(owned, p.calls[0].call.owned[0])
	}
	k.bind(run, bounds{owned: owned, limit: k.cfg.MaxRun})
	defer run.unbind(nil)
	for i, p := range gr.parts {
		ctx := run
		if i > 0 { // each operation sees the grant of its own resource
			ctx = &runContext{Context: run, guard: run.guard, grants: p.calls[0].call.Grants}
		}
		for _, b := range p.calls {
			if err := txn.Run(ctx, b.op); err != nil {
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
		for _, b := range p.calls {
			moves[i].Ops = append(moves[i].Ops, b.runs.record)
		}
	}
	return moves
}
