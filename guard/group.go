package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// group is a transaction that calls for one resource share: see Config.MaxBatch. Each call
// is a member. It runs its function on its own goroutine and passes the transaction on to the
// next call in the queue, if that may join. The last member commits. So no goroutine is
// indispensable: members that panic or end their goroutine pass on as well.
//
// A member's run ends when the group does: its value and its error may rest on what the
// members before it wrote. A call whose function did not run stays in the queue.
type group[Tx any] struct {
	engine  *engine[Tx]
	line    *line
	owned   []*ownership
	states  grantStates
	txn     storage.Txn[Tx]
	whole   *runContext // its end ends the transaction
	unwatch func() bool // stops fail from being called when whole ends
	began   time.Time

	// Used by the member that has the transaction.
	room     int                   // how many more calls may join
	wrote    bool                  // a member has succeeded
	keys     map[string]bool       // of Once, that members have
	recalled map[*waiter]*recalled // what was looked up for calls that may join
	early    []*waiter             // calls that waited when the transaction began, if only those may join

	mu      sync.Mutex
	members []*member[Tx] // whose functions have run, and that have no verdict yet
	decided bool          // COMMIT is under way, or won't be sent
	failure error         // why it won't be sent although the transaction may still run
}

// member is one run of a call in a group.
type member[Tx any] struct {
	call *guardCall
	runs *runs

	err      error // of the function; nil if it succeeded
	kept     []byte
	repeated bool         // it took effect in an earlier call: see Once
	rests    bool         // what it returned may rest on what a member before it wrote
	verdict  chan verdict // has room for one
}

// verdict says how a member's run has ended.
type verdict struct {
	err   error
	again *waiter // the call's place in the queue, for another run; nil if the call ends
}

// errNotReturned is the error of a member whose function panicked or ended its goroutine.
var errNotReturned = errors.New("guard: the function did not return")

// lead begins a group, whose first member is the call c. That has the turn at its only
// resource, and the claim.
func (e *engine[Tx]) lead(ctx context.Context, c *guardCall, op storage.Op[Tx], r *runs) error {
	gr := &group[Tx]{
		engine: e, line: c.lines[0], owned: slices.Clone(c.owned), states: slices.Clone(c.states),
		room: e.keeper.cfg.MaxBatch, began: time.Now(), keys: map[string]bool{}, recalled: map[*waiter]*recalled{},
	}
	first, err := gr.begin(ctx, r)
	if err != nil {
		c.Grants = gr.states.grants()
		c.Runs++
		return err
	}
	c.lines = c.lines[:0] // the turn is the group's from here on
	return gr.join(ctx, c, op, r, first)
}

// begin looks up the keys of calls that may join, and begins the transaction. It returns
// what is known about the key of the first one, if that has one.
func (gr *group[Tx]) begin(ctx context.Context, r *runs) (first *recalled, err error) {
	e := gr.engine
	run := newRunContext(ctx)
	e.keeper.contexts.add(run)
	defer run.finish(nil)
	if r.once != nil {
		gr.keys[r.once.Key] = true
		if first = e.lookUp(run, gr.states, *r.once); first.err != nil {
			return nil, first.err
		}
	}
	gr.lookUpAll(run)
	if gr.txn, err = e.begin(run, gr.states, false); err != nil {
		return nil, err
	}
	if gr.txn.OneSnapshot() {
		gr.early = e.keeper.joining(gr.line, gr.room-1)
	}
	gr.whole = newRunContext(context.Background())
	e.keeper.contexts.add(gr.whole)
	gr.unwatch = context.AfterFunc(gr.whole, func() { gr.fail(context.Cause(gr.whole)) })
	return first, nil
}

// lookUpAll looks up the keys of Once of the calls that wait. It happens before the
// transaction begins: a look-up needs a connection of its own. A call whose key was not
// looked up can't join.
func (gr *group[Tx]) lookUpAll(run *runContext) {
	for _, w := range gr.engine.keeper.joining(gr.line, gr.room-1) {
		if w.once == nil {
			continue
		}
		known := gr.engine.lookUp(run, gr.states, *w.once)
		if known.err != nil && !errors.Is(known.err, ErrKeyReused) {
			return
		}
		gr.recalled[w] = known
	}
}

// join runs op as the next member, passes on, and waits for the end of the group. If the
// call may run again, it does so in a transaction of its own.
func (gr *group[Tx]) join(ctx context.Context, c *guardCall, op storage.Op[Tx], r *runs, known *recalled) error {
	c.Grants = gr.states.grants()
	c.Runs++
	m := &member[Tx]{call: c, runs: r, rests: gr.wrote, err: errNotReturned, verdict: make(chan verdict, 1)}
	v := gr.member(ctx, m, op, known)
	if v.again == nil {
		if v.err == nil && m.repeated {
			c.Outcome = OutcomeRepeated
		}
		return v.err
	}
	r.err, r.n, c.alone = v.err, r.n+1, true
	l, err := gr.engine.keeper.wait(ctx, gr.line, v.again)
	if err != nil {
		return fmt.Errorf("%w: %w", err, v.err)
	}
	c.lines = append(c.lines, l)
	return gr.engine.runOnce(ctx, c, op, r)
}

// member runs op and passes on, whether or not op returns.
func (gr *group[Tx]) member(ctx context.Context, m *member[Tx], op storage.Op[Tx], known *recalled) (v verdict) {
	defer func() {
		gr.passOn(ctx, m)
		v = <-m.verdict
	}()
	if known != nil && (known.found || known.err != nil) {
		m.repeat(known)
		return v
	}
	gr.run(ctx, m, op)
	return v
}

// repeat gives the call the result that was kept. That, or the error, rests on nothing that
// the group wrote.
func (m *member[Tx]) repeat(known *recalled) {
	m.rests, m.repeated = false, true
	err := known.err
	if err == nil {
		err = m.runs.decode(m.call.Grants, known.result)
	}
	m.err = err
}

// run runs op in the transaction.
func (gr *group[Tx]) run(ctx context.Context, m *member[Tx], op storage.Op[Tx]) {
	e := gr.engine
	run := newRunContext(ctx)
	run.guard, run.grants = e.key, m.call.Grants
	e.keeper.contexts.add(run)
	defer run.finish(nil)
	e.keeper.bind(run, bounds{owned: gr.owned, limit: e.keeper.cfg.MaxRun, whole: gr.whole})
	m.err = withCause(run, gr.txn.RunMember(run, gr.whole, storage.Func[Tx](func(ctx context.Context, tx Tx) error {
		if err := op.Run(ctx, tx); err != nil {
			return err
		}
		return m.encode() // a result that can't be kept fails the member while it can be undone
	})))
	gr.wrote = gr.wrote || m.err == nil
}

func (m *member[Tx]) encode() (err error) {
	if m.runs.once != nil {
		m.kept, err = m.runs.keep()
	}
	return err
}

// passOn passes the transaction on to the next call, or ends it. m has it.
func (gr *group[Tx]) passOn(ctx context.Context, m *member[Tx]) {
	over := gr.txn.Over()
	if over == nil && rejectionOf(m.err, gr.states.grants()...) != nil {
		over = m.err
	}
	gr.mu.Lock()
	gr.members = append(gr.members, m)
	failed := gr.decided
	gr.mu.Unlock()
	gr.room--
	if over == nil && !failed && !gr.txn.Last() && gr.mayGoOn() && gr.engine.keeper.handOn(gr.line, gr.admit) {
		return
	}
	gr.end(ctx, over)
}

// mayGoOn reports whether another call may join. Config.MaxHold bounds the whole group: the
// first members wait for the last one.
func (gr *group[Tx]) mayGoOn() bool {
	k := gr.engine.keeper
	return gr.room > 0 && time.Since(gr.began) < k.cfg.MaxHold && gr.whole.Err() == nil && gr.owned[0].lease.Err() == nil
}

// admit admits the first call in the queue, unless its key of Once is a member's, or was
// not looked up, or the transaction's snapshot is older than the call. Then the group is
// closed, so that calls take effect in the order of the queue. The caller holds keeper.mu.
func (gr *group[Tx]) admit(w *waiter) bool {
	if gr.txn.OneSnapshot() && !slices.Contains(gr.early, w) {
		return false
	}
	if w.once != nil {
		known, ok := gr.recalled[w]
		if !ok || gr.keys[w.once.Key] {
			return false
		}
		gr.keys[w.once.Key] = true
		w.known = known
	}
	w.group = gr
	return true
}
