package guard

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/internal/turns"
	"github.com/fencekit/fencekit/storage"
)

// batchCall is a call with a storage.BatchOp and without Once. It shares a transaction with
// others: those that wait behind it for the same resource, and those on other resources that
// meet it in forming. If the transaction fails, it has taken no effect, so their operations may
// run again: the one that failed alone, and the others together; or each alone if the store
// doesn't know which one it was. Those of one resource run in the order of its queue.
type batchCall[Tx any] struct {
	call *guardCall
	op   storage.Op[Tx]
	ctx  context.Context // of the call

	state batchState
	ready chan struct{} // closed when a call that waited in forming has another state; nil if it never waited
	err   error         // what the call returns if state is ends
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

// resource is what is known of the call's only resource, while the call has its lease.
func (b *batchCall[Tx]) resource() *grantState { return b.call.held.Values[0] }

// runBatch runs a batch once: in a transaction of another call that had the turn before, or in one that
// others may share.
func runBatch[Tx any](ctx context.Context, g *Guard[Tx], c *guardCall, op storage.Op[Tx]) error {
	b := &batchCall[Tx]{call: c, op: op, ctx: ctx}
	if took, err := c.held.TakeOrOffer(ctx, b); err != nil {
		return err
	} else if took {
		return b.err
	}
	if b.state == runsAlone { // it was in a group that has failed
		return runBatchAlone(ctx, g, b)
	}
	if took, err := g.takeAndClaim(ctx, &c.held); err != nil {
		if took {
			c.Grants = c.states().grants()
			c.Runs++
		}
		return err
	}
	gr := &batchGroup[Tx]{guard: g, leader: b, parts: []part[Tx]{{calls: []*batchCall[Tx]{b}}}, calls: 1}
	switch backoff := &b.resource().backoff; {
	case backoff.nextAlone():
		gr.of = ofOne
	case backoff.aloneFailed || g.forming == nil || g.forming.nextAlone():
		gr.of = ofQueue
	default:
		gr.of = ofSeveral
		if err := g.forming.join(ctx, b); err != nil {
			return err
		}
		if b.state == leads && b.ready != nil && !c.held.Usable() {
			g.forming.leave(false)
			b.state = runsAlone // it has waited for too long
		}
		if b.state != leads {
			return afterGroup(ctx, g, b)
		}
	}
	err := gr.run(ctx)
	if gr.shared() {
		return afterGroup(ctx, g, b)
	}
	b.resource().backoff.aloneFailed = err != nil && ctx.Err() == nil
	return err
}

// afterGroup ends b's call as its group has ended, or runs b again.
func afterGroup[Tx any](ctx context.Context, g *Guard[Tx], b *batchCall[Tx]) error {
	switch b.state {
	case ends:
		return b.err
	case runsShared:
		return runOnce(ctx, g, b.call, b.op)
	}
	return runBatchAlone(ctx, g, b)
}

// runBatchAlone runs b in a transaction of its own, after a group that had it has failed.
func runBatchAlone[Tx any](ctx context.Context, g *Guard[Tx], b *batchCall[Tx]) error {
	b.call.alone = true
	err := runOnce(ctx, g, b.call, b.op)
	if s := b.resource(); s != nil {
		s.backoff.aloneFailed = err != nil && ctx.Err() == nil
	}
	return err
}

// batchGroup is a transaction that calls with batches share: those of one resource's queue,
// and those on other resources whose turns their calls had when the transaction began. The
// call that leads it waits for nothing but the database, and holds the turn at its own
// resource only. So when the group has failed, no call waits with another one's turn (L2).
type batchGroup[Tx any] struct {
	guard  *Guard[Tx]
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
type part[Tx any] struct{ calls []*batchCall[Tx] }

func (p part[Tx]) held() *held { return &p.calls[0].call.held }

func (p part[Tx]) grants() []fence.Grant { return p.calls[0].call.states().grants() }

// maxBatchCalls bounds how many calls share a transaction.
const maxBatchCalls = 64

// shared reports whether several calls are in the group.
func (gr *batchGroup[Tx]) shared() bool { return gr.calls > 1 }

// begin begins the transaction. It takes the other calls once the store has a connection:
// until then more can come, and those whose context ends can leave.
func (gr *batchGroup[Tx]) begin(run *runContext) (storage.Txn[Tx], error) {
	g := gr.guard
	defer g.steps.stop(g.steps.start(run))
	if gr.of == ofSeveral {
		return g.groups.BeginGroup(run, func() []storage.Claim {
			gr.gather()
			gr.takeQueues()
			return gr.states().claims()
		})
	}
	txn, err := g.store.Begin(run, gr.states().claims()...)
	if err == nil && gr.of == ofQueue {
		gr.takeQueues()
	}
	return txn, err
}

// gather takes the calls that wait in forming, but for those whose context has ended and
// those whose lease no other call may use any more.
func (gr *batchGroup[Tx]) gather() {
	gr.gathered = true
	for _, b := range gr.guard.forming.take(maxBatchCalls - gr.calls) {
		switch err := turns.EndError(b.ctx); {
		case err != nil:
			b.refuse(ends, err)
		case !b.call.held.Usable():
			b.refuse(runsAlone, nil)
		default:
			gr.parts = append(gr.parts, part[Tx]{calls: []*batchCall[Tx]{b}})
			gr.calls++
		}
	}
}

// refuse tells a call how it goes on, since a group has not taken it.
func (b *batchCall[Tx]) refuse(state batchState, err error) {
	b.state, b.err = state, err
	close(b.ready)
}

// takeQueues takes calls from the queues of the group's resources.
func (gr *batchGroup[Tx]) takeQueues() {
	for i := range gr.parts {
		p := &gr.parts[i]
		p.held().TakeWaiting(maxBatchCalls-gr.calls, func(offer any) bool {
			p.calls = append(p.calls, offer.(*batchCall[Tx]))
			return true
		})
		gr.calls += len(p.calls) - 1
	}
}

// states returns those of the group's grants, in the order of its parts.
func (gr *batchGroup[Tx]) states() grantStates {
	states := make(grantStates, len(gr.parts))
	for i, p := range gr.parts {
		states[i] = p.held().Values[0]
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
			gr.guard.forming.leave(gr.gathered)
		}
		if gr.shared() {
			gr.end(outcome)
		}
	}()
	return gr.runOnce(ctx)
}

// runOnce runs the calls of the group in one transaction.
func (gr *batchGroup[Tx]) runOnce(ctx context.Context) error {
	g := gr.guard
	run := newRunContext(ctx)
	run.guard, run.grants = g, gr.parts[0].grants()
	g.contexts.add(run)
	defer run.finish(nil)
	txn, err := gr.begin(run)
	states := gr.noteRuns()
	if err != nil {
		return g.stepFailed(run, states, "begin", err)
	}
	defer txn.Rollback(ctx)
	if err := gr.runAll(run, txn); err != nil {
		return g.noteRejection(ctx, states, turns.WithCause(run, err))
	}
	if !gr.shared() && ctx.Err() != nil {
		return turns.EndError(ctx)
	}
	gr.sent = true
	return g.commitMoves(ctx, states, txn, gr.leader.call.runs.options, gr.moves())
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

// runAll runs the operations of all calls in txn.
func (gr *batchGroup[Tx]) runAll(run *runContext, txn storage.Txn[Tx]) error {
	b := bounds{limit: gr.guard.cfg.MaxRun}
	for _, p := range gr.parts {
		b.held = append(b.held, p.held())
	}
	run.bind(b, gr.guard.report)
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
			moves[i].Ops = append(moves[i].Ops, b.call.runs.record)
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
		for _, b := range p.calls {
			b.setEnd(outcome, blamed)
		}
		first := p.calls[0]
		if failed {
			first.resource().unreported = true // its calls run again
		}
		if !failed || len(gr.parts) == 1 {
			first.resource().backoff.noteEnd(failed, len(p.calls), blamed != nil)
		}
		p.held().EndTaken(func(offer any) (next any, goes bool) {
			if b := offer.(*batchCall[Tx]); b.state == runsShared {
				return b, true
			}
			return nil, failed
		})
		if first != gr.leader {
			close(first.ready)
		}
	}
}

// blamed returns the call whose operation made the group fail, if the store knows it.
func (gr *batchGroup[Tx]) blamed(outcome error) *batchCall[Tx] {
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

// setEnd notes how the call goes on after its group has ended with outcome. blamed is the call
// whose operation made the group fail, or nil.
func (b *batchCall[Tx]) setEnd(outcome error, blamed *batchCall[Tx]) {
	switch {
	case !tookNoEffect(outcome):
		b.state, b.err = ends, outcome
	case blamed == nil || blamed == b:
		b.state = runsAlone
	default:
		b.state = runsShared
	}
	var unknown *UnknownOutcomeError
	if errors.As(outcome, &unknown) {
		own := *unknown
		own.Record, own.Grants = b.call.runs.record, b.call.Grants
		b.err = &own
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

// forming is where calls with batches on different resources meet. Each has the turn at its
// resource, and the claim. A call that finds fewer than limit groups under way leads one at once;
// the others wait until one of those has ended, and then share the next. So groups grow with the
// load, and a call that no other meets never waits. While calls wait they have no turn but their
// own, and a group takes only calls that are here (L2).
type forming[Tx any] struct {
	limit int // how many groups may be under way when a call begins another one

	mu        sync.Mutex
	waiting   []*batchCall[Tx] // in order of arrival
	gathering int              // groups that will take calls once the store has a connection for them
	underWay  int              // groups that have taken their calls
	overdue   *time.Timer      // calls waitedLong; nil before its first use
	armed     bool             // overdue will call it

	backoff
}

// newForming returns a forming without calls. As many groups as there are processors, and at least
// two, keep client and server busy; with more groups each has fewer calls, at the same cost.
func newForming[Tx any]() *forming[Tx] { return &forming[Tx]{limit: max(2, runtime.GOMAXPROCS(0))} }

// patience is how long calls wait before one leads a group although limit groups are under way:
// those may be waiting for a lock.
const patience = 20 * time.Millisecond

// nextAlone reports whether the call that asks shares no group with calls on other resources,
// since earlier ones failed.
func (f *forming[Tx]) nextAlone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.backoff.nextAlone()
}

// noteEnd notes how a group of n calls on several resources has ended.
func (f *forming[Tx]) noteEnd(failed bool, n int, blamed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backoff.noteEnd(failed, n, blamed)
}

// join waits until b leads a group, or until a group that took b has ended: b.state says which. It
// fails if ctx ends before either. A group that b leads uses take when its transaction begins, and
// leave when it has ended.
func (f *forming[Tx]) join(ctx context.Context, b *batchCall[Tx]) error {
	f.mu.Lock()
	if f.gathering == 0 && f.underWay < f.limit {
		f.gathering++
		f.mu.Unlock()
		b.state = leads
		return nil
	}
	b.ready = make(chan struct{})
	f.waiting = append(f.waiting, b)
	f.appoint()
	f.mu.Unlock()
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	if i := slices.Index(f.waiting, b); i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
		f.mu.Unlock()
		return turns.EndError(ctx)
	}
	f.mu.Unlock()
	<-b.ready // at once, unless a group has taken b
	return nil
}

// appoint makes the first call that waits lead a group, if fewer than limit are under way, or
// enough calls wait for a full one. The caller holds f.mu.
func (f *forming[Tx]) appoint() {
	if len(f.waiting) > 0 && f.gathering == 0 && (f.underWay < f.limit || len(f.waiting) >= maxBatchCalls) {
		f.lead()
	}
	f.watch()
}

// lead makes the first call that waits lead a group. The caller holds f.mu.
func (f *forming[Tx]) lead() {
	b := f.waiting[0]
	f.waiting = slices.Delete(f.waiting, 0, 1)
	f.gathering++
	b.state = leads
	close(b.ready)
}

// watch arms the timer if calls wait, and stops it if none do. The caller holds f.mu.
func (f *forming[Tx]) watch() {
	wait := len(f.waiting) > 0
	switch {
	case wait == f.armed:
	case !wait:
		f.overdue.Stop()
	case f.overdue == nil:
		f.overdue = time.AfterFunc(patience, f.waitedLong)
	default:
		f.overdue.Reset(patience)
	}
	f.armed = wait
}

// waitedLong makes the first call that waits lead a group, however many are under way.
func (f *forming[Tx]) waitedLong() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	if len(f.waiting) > 0 {
		f.lead()
	}
	f.watch()
}

// take takes up to limit calls out of those that wait, for a group that is under way from
// now on.
func (f *forming[Tx]) take(limit int) []*batchCall[Tx] {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gathering--
	f.underWay++
	n := min(limit, len(f.waiting))
	taken := slices.Clone(f.waiting[:n])
	f.waiting = slices.Delete(f.waiting, 0, n)
	f.appoint()
	return taken
}

// leave ends a group. taken says whether take was called for it.
func (f *forming[Tx]) leave(taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if taken {
		f.underWay--
	} else {
		f.gathering--
	}
	f.appoint()
}
