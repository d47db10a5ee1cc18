package guard

import (
	"cmp"
	"errors"

	"github.com/fencekit/fencekit/storage"
)

// next is how a call with a storage.BatchOp and without Once goes on after a transaction that it shared. If that
// failed, it has taken no effect, so its operations may run again: the one that failed alone, and the others
// together; or each alone if the store doesn't know which one it was. Those of one resource run in the order of its
// queue.
type next struct {
	how batchEnd
	err error // what the call returns if it ends
}

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

func (c *call[Tx]) noteAlone(err error) error {
	if len(c.held.states) > 0 {
		c.held.states[0].backoff.aloneFailed = err != nil && c.ctx.Err() == nil
	}
	return err
}

func (c *call[Tx]) share() next {
	g := c.guard
	c.next, c.held.offer = next{}, c
	switch err := g.take(c.ctx, &c.held); {
	case err == errTaken:
		return c.next
	case err != nil:
		c.noteRun(c.held.states)
		return next{err: err}
	case c.next.how == runsAlone: // it was in a group that has failed
		return c.next
	}
	backoff := &c.held.states[0].backoff
	shares, meets := !backoff.nextAlone(), false
	if shares && g.forming != nil && !backoff.aloneFailed {
		switch w, waited := g.forming.join(c.ctx, c); {
		case w == nil:
		case w.got == theOffer:
			return c.next
		case w.got == nothing:
			return next{err: cmp.Or(w.failure, endError(c.ctx))}
		case waited && !g.lines.usable(c.held.states[0]): // it has waited for too long
			g.forming.leave(false)
			return next{how: runsAlone}
		default:
			meets = true
		}
	}
	c.noteRun(c.held.states)
	t := c.begins(bounds{limit: g.cfg.MaxRun})
	t.shares, t.meets = shares, meets
	err := t.runShared()
	if t.calls > 1 {
		return c.next
	}
	return next{err: c.noteAlone(err)}
}

// runShared is run, and tells the calls other than the leader what became of the transaction.
func (t *transaction[Tx]) runShared() (outcome error) {
	outcome = errStoreGone
	defer func() { // also if the store panics
		if outcome == errStoreGone && t.sent {
			outcome = &UnknownOutcomeError{Grants: t.states.grants(), Err: errStoreGone, AskErr: errStoreGone}
		}
		if t.meets {
			t.leader.guard.forming.leave(t.gathered)
		}
		if t.calls > 1 {
			t.end(outcome)
		}
	}()
	return t.run()
}

// gather takes calls that wait in forming, but for those whose context has ended, and those whose lease no other
// call may use any more.
func (t *transaction[Tx]) gather() {
	g := t.leader.guard
	t.gathered = true
	for _, w := range g.forming.take(maxBatchCalls - t.calls) {
		c := w.offer.(*call[Tx])
		switch err := endError(c.ctx); {
		case err != nil:
			w.wake(nothing, err)
		case !g.lines.usable(c.held.states[0]):
			c.next.how = runsAlone
			w.wake(theOffer, nil)
		default:
			t.parts = append(t.parts, part[Tx]{calls: []*call[Tx]{c}, first: w})
			t.states = append(t.states, c.held.states[0])
			t.calls++
			c.noteRun(c.held.states)
		}
	}
}

func (t *transaction[Tx]) takeQueues() {
	for i := range t.parts {
		p := &t.parts[i]
		first := &p.calls[0].held
		p.taken = t.leader.guard.lines.takeWaiting(first.turns[0], maxBatchCalls-t.calls)
		for _, w := range p.taken {
			c := w.offer.(*call[Tx])
			p.calls = append(p.calls, c)
			c.noteRun(first.states)
		}
		t.calls += len(p.taken)
	}
}

func (t *transaction[Tx]) notePlaces() {
	place := 0
	for _, p := range t.parts {
		for _, c := range p.calls {
			c.BatchSize, c.BatchPlace = t.calls, place
			place++
		}
	}
}

// end tells each call how it goes on. Calls that were taken from a queue and run again get the first places in it,
// where another transaction may take them unless they are to run alone.
func (t *transaction[Tx]) end(outcome error) {
	g := t.leader.guard
	failed := tookNoEffect(outcome)
	blamed := t.blamed(outcome)
	if len(t.parts) > 1 {
		g.forming.noteEnd(failed, t.calls, blamed != nil)
	}
	for i, p := range t.parts {
		for _, c := range p.calls {
			c.setEnd(outcome, blamed)
		}
		s := t.states[i]
		if failed {
			s.unreported = true // its calls run again
		}
		if !failed || len(t.parts) == 1 {
			s.backoff.noteEnd(failed, len(p.calls), blamed != nil)
		}
		for i, w := range p.taken {
			if p.calls[i+1].next.how == runsAlone {
				w.offer = nil
			}
		}
		g.lines.endTaken(p.calls[0].held.turns[0], p.taken, failed)
		if p.first != nil {
			p.first.wake(theOffer, nil)
		}
	}
}

// blamed returns the call whose operation made the transaction fail, if the store knows it.
func (t *transaction[Tx]) blamed(outcome error) *call[Tx] {
	var failed *storage.OpError
	if !errors.As(outcome, &failed) {
		return nil
	}
	n := failed.Number
	for _, p := range t.parts {
		if n < len(p.calls) {
			return p.calls[n]
		}
		n -= len(p.calls)
	}
	return nil
}

// setEnd notes how c goes on after its transaction has ended with outcome. blamed is the call
// whose operation made it fail, or nil.
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

func tookNoEffect(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrTxEnded)
}
