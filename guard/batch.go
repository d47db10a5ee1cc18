package guard

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// batch is where a call with a storage.BatchOp and without Once stands. It shares a transaction with
// others: those that wait behind it for the same resource, and those on other resources that
// meet it in forming. If the transaction fails, it has taken no effect, so their operations may
// run again: the one that failed alone, and the others together; or each alone if the store
// doesn't know which one it was. Those of one resource run in the order of its queue.
type batch struct {
	state batchState
	ready chan struct{} // closed when a call that waits in forming, or for its group, has another state
	err   error         // what the call returns if state is ends
}

// batchState says how a call with a batch goes on.
type batchState int

const (
	waits      batchState = iota // for the turn, in forming, or for the end of its group
	leads                        // a group
	ends                         // with batch.err
	runsAlone                    // again, in a transaction of its own
	runsShared                   // again, and may share its transaction
)

// runBatch runs a batch once: in a transaction of another call that had the turn before, or in one that
// others may share.
func (c *call[Tx]) runBatch() error {
	g := c.guard
	c.batch = batch{}
	if len(c.held.turns) == 0 {
		l, err := g.lines.takeTurn(c.ctx, c.Resources[0], c)
		if err != nil {
			return err
		}
		if l == nil {
			return c.batch.err
		}
		c.held.turns = append(c.held.turn[:0], l)
	}
	if c.batch.state == runsAlone { // it was in a group that has failed
		return c.runBatchAlone()
	}
	if err := g.take(c.ctx, &c.held); err != nil {
		c.noteRun(c.held.states)
		return err
	}
	gr := &batchGroup[Tx]{guard: g, leader: c, parts: []part[Tx]{{calls: []*call[Tx]{c}}}, calls: 1}
	switch backoff := &c.held.states[0].backoff; {
	case backoff.nextAlone():
		gr.of = ofOne
	case backoff.aloneFailed || g.forming == nil || g.forming.nextAlone():
		gr.of = ofQueue
	default:
		gr.of = ofSeveral
		waited, err := g.forming.join(c)
		if err != nil {
			return err
		}
		if waited && c.batch.state == leads && !g.lines.usable(c.held.states[0]) {
			g.forming.leave(false)
			c.batch.state = runsAlone // it has waited for too long
		}
		if c.batch.state != leads {
			return c.afterGroup()
		}
	}
	err := gr.run()
	if gr.shared() {
		return c.afterGroup()
	}
	c.held.states[0].backoff.aloneFailed = err != nil && c.ctx.Err() == nil
	return err
}

// afterGroup ends c as its group has ended, or runs c again.
func (c *call[Tx]) afterGroup() error {
	switch c.batch.state {
	case ends:
		return c.batch.err
	case runsShared:
		return c.runBatch()
	}
	return c.runBatchAlone()
}

// runBatchAlone runs c in a transaction of its own, after a group that had it has failed.
func (c *call[Tx]) runBatchAlone() error {
	c.alone = true
	err := c.runOnce()
	if len(c.held.states) > 0 {
		c.held.states[0].backoff.aloneFailed = err != nil && c.ctx.Err() == nil
	}
	return err
}

// batchGroup is a transaction that calls with batches share: those of one resource's queue,
// and those on other resources whose turns their calls had when the transaction began. The
// call that leads it waits for nothing but the database, and holds the turn at its own
// resource only. So when the group has failed, no call waits with another one's turn (L2).
type batchGroup[Tx any] struct {
	guard  *Guard[Tx]
	leader *call[Tx]
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
	calls []*call[Tx]
	taken []*waiter // of the calls but for the first
}

func (p *part[Tx]) line() *line { return p.calls[0].held.turns[0] }

// maxBatchCalls bounds how many calls share a transaction.
const maxBatchCalls = 64

// shared reports whether several calls are in the group.
func (gr *batchGroup[Tx]) shared() bool { return gr.calls > 1 }

// begin begins the transaction. It takes the other calls once the store has a connection:
// until then more can come, and those whose context ends can leave.
func (gr *batchGroup[Tx]) begin(run *runContext) (storage.Txn[Tx], error) {
	g := gr.guard
	defer g.bound(run).Stop()
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
	for _, c := range gr.guard.forming.take(maxBatchCalls - gr.calls) {
		switch err := endError(c.ctx); {
		case err != nil:
			c.batch.state, c.batch.err = ends, err
			close(c.batch.ready)
		case !gr.guard.lines.usable(c.held.states[0]):
			c.batch.state = runsAlone
			close(c.batch.ready)
		default:
			gr.parts = append(gr.parts, part[Tx]{calls: []*call[Tx]{c}})
			gr.calls++
		}
	}
}

// takeQueues takes calls from the queues of the group's resources.
func (gr *batchGroup[Tx]) takeQueues() {
	for i := range gr.parts {
		p := &gr.parts[i]
		p.taken = gr.guard.lines.takeWaiting(p.line(), maxBatchCalls-gr.calls)
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
		if gr.of == ofSeveral {
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
	txn, err := gr.begin(run)
	states := gr.noteRuns()
	if err != nil {
		return g.stepFailed(run, states, "begin", err)
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
		first := p.calls[0]
		s := first.held.states[0]
		if failed {
			s.unreported = true // its calls run again
		}
		if !failed || len(gr.parts) == 1 {
			s.backoff.noteEnd(failed, len(p.calls), blamed != nil)
		}
		for i, w := range p.taken {
			if p.calls[i+1].batch.state == runsAlone {
				w.offer = nil
			}
		}
		gr.guard.lines.endTaken(p.line(), p.taken, failed)
		if first != gr.leader {
			close(first.batch.ready)
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
		c.batch.state, c.batch.err = ends, outcome
	case blamed == nil || blamed == c:
		c.batch.state = runsAlone
	default:
		c.batch.state = runsShared
	}
	var unknown *UnknownOutcomeError
	if errors.As(outcome, &unknown) {
		own := *unknown
		own.Record, own.Grants = c.Record, c.Grants
		c.batch.err = &own
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
	waiting   []*call[Tx] // in order of arrival
	gathering int         // groups that will take calls once the store has a connection for them
	underWay  int         // groups that have taken their calls
	overdue   *time.Timer // calls waitedLong; nil if no call waits

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

// join waits until c leads a group, or until a group that took c has ended: its state says which. waited is
// false if c leads at once. It fails if its context ends before either. A group that c leads uses take when its
// transaction begins, and leave when it has ended.
func (f *forming[Tx]) join(c *call[Tx]) (waited bool, err error) {
	c.batch.ready = make(chan struct{})
	f.mu.Lock()
	f.waiting = append(f.waiting, c)
	f.appoint(false)
	waited = c.batch.state != leads
	f.mu.Unlock()
	select {
	case <-c.batch.ready:
		return waited, nil
	case <-c.ctx.Done():
	}
	f.mu.Lock()
	i := slices.Index(f.waiting, c)
	if i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	f.mu.Unlock()
	if i >= 0 {
		return waited, endError(c.ctx)
	}
	<-c.batch.ready // at once, unless a group has taken c
	return waited, nil
}

// appoint makes the first call that waits lead a group, if it is overdue, fewer than limit are under way, or
// enough calls wait for a full one. The caller holds f.mu.
func (f *forming[Tx]) appoint(overdue bool) {
	free := f.gathering == 0 && (f.underWay < f.limit || len(f.waiting) >= maxBatchCalls)
	if len(f.waiting) > 0 && (overdue || free) {
		c := f.waiting[0]
		f.waiting = slices.Delete(f.waiting, 0, 1)
		f.gathering++
		c.batch.state = leads
		close(c.batch.ready)
	}
	switch wait := len(f.waiting) > 0; {
	case wait && f.overdue == nil:
		f.overdue = time.AfterFunc(patience, f.waitedLong)
	case !wait && f.overdue != nil:
		f.overdue.Stop()
		f.overdue = nil
	}
}

// waitedLong makes the first call that waits lead a group, however many are under way.
func (f *forming[Tx]) waitedLong() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.overdue = nil
	f.appoint(true)
}

// take takes up to limit calls out of those that wait, for a group that is under way from
// now on.
func (f *forming[Tx]) take(limit int) []*call[Tx] {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gathering--
	f.underWay++
	n := min(limit, len(f.waiting))
	taken := slices.Clone(f.waiting[:n])
	f.waiting = slices.Delete(f.waiting, 0, n)
	f.appoint(false)
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
	f.appoint(false)
}
