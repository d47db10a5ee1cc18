package guard

import (
	"cmp"
	"errors"

	"github.com/fencekit/fencekit/storage"
)

// errRunsAgain tells a call that the transaction it shared took no effect. The call whose operation failed runs
// alone, the others share again; if the store doesn't know which one failed, all run alone.
var errRunsAgain = errors.New("guard: the operation runs again")

func (c *call[Tx]) runBatch() error {
	for !c.alone {
		if err := c.share(); err != errRunsAgain {
			return err
		}
	}
	return c.noteAlone(c.runAlone())
}

func (c *call[Tx]) noteAlone(err error) error {
	if len(c.held.states) > 0 {
		c.held.states[0].backoff.aloneFailed = err != nil && c.ctx.Err() == nil
	}
	return err
}

func (c *call[Tx]) share() error {
	g := c.guard
	switch err := g.take(c.ctx, &c.held, c); {
	case err == errTaken:
		return c.ended
	case err != nil:
		c.noteRun(c.held.states)
		return err
	case c.alone:
		return errRunsAgain
	}
	backoff := &c.held.states[0].backoff
	shares, meets := !backoff.nextAlone(), false
	if shares && g.forming != nil && !backoff.aloneFailed {
		switch w, waited := g.forming.join(c.ctx, c); {
		case w == nil:
		case w.got == theOffer:
			return c.ended
		case w.got == nothing:
			return cmp.Or(w.failure, endError(c.ctx))
		case waited && !g.lines.usable(c.held.states[0]):
			g.forming.leave(false)
			c.alone = true
			return errRunsAgain
		default:
			meets = true
		}
	}
	c.noteRun(c.held.states)
	t := c.begins(bounds{limit: g.cfg.MaxRun})
	t.shares, t.meets = shares, meets
	err := t.runShared()
	if t.calls > 1 {
		return c.ended
	}
	return c.noteAlone(err)
}

func (t *transaction[Tx]) runShared() (outcome error) {
	outcome = errStoreGone
	defer func() {
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

func (t *transaction[Tx]) gather() {
	g := t.leader.guard
	t.gathered = true
	for _, w := range g.forming.take(maxBatchCalls - t.calls) {
		c := w.offer.(*call[Tx])
		switch err := endError(c.ctx); {
		case err != nil:
			w.wake(nothing, err)
		case !g.lines.usable(c.held.states[0]):
			c.alone, c.ended = true, errRunsAgain
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
			s.unreported = true
		}
		if !failed || len(t.parts) == 1 {
			s.backoff.noteEnd(failed, len(p.calls), blamed != nil)
		}
		for i, w := range p.taken {
			if p.calls[i+1].alone {
				w.offer = nil
			}
		}
		g.lines.endTaken(p.calls[0].held.turns[0], p.taken, failed)
		if p.first != nil {
			p.first.wake(theOffer, nil)
		}
	}
}

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

func (c *call[Tx]) setEnd(outcome error, blamed *call[Tx]) {
	c.ended = outcome
	if tookNoEffect(outcome) {
		c.alone, c.ended = blamed == nil || blamed == c, errRunsAgain
	}
	var unknown *UnknownOutcomeError
	if errors.As(outcome, &unknown) {
		own := *unknown
		own.Record, own.Grants = c.Record, c.Grants
		c.ended = &own
	}
}

func tookNoEffect(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrTxEnded)
}
