package guard

import (
	"errors"

	"github.com/fencekit/fencekit/storage"
)

// errRunsAgain tells a call that the transaction it shared took no effect. The call whose operation failed runs
// alone, the others share again; if the store doesn't know which one failed, all run alone.
var errRunsAgain = errors.New("guard: the operation runs again")

const maxBatchCalls = 64

func (c *call[Tx]) runBatch() error {
	for !c.alone {
		if err := c.share(); err != errRunsAgain {
			return err
		}
	}
	return c.runAlone()
}

func (c *call[Tx]) share() error {
	switch err := c.take(c); {
	case err == errTaken:
		return c.ended
	case err != nil:
		return err
	case c.alone:
		return errRunsAgain
	}
	t := c.begins(bounds{limit: c.guard.cfg.MaxRun})
	t.shares = !c.states[0].line.backoff.nextAlone()
	err := t.runShared()
	switch {
	case len(t.calls) > 1:
		return c.ended
	case err == storage.ErrHeld:
		return errRunsAgain
	}
	return err
}

func (t *transaction[Tx]) runShared() (outcome error) {
	outcome = errStoreGone
	defer func() {
		if outcome == errStoreGone && t.sent {
			outcome = &UnknownOutcomeError{Grants: t.states.grants(), Err: errStoreGone, AskErr: errStoreGone}
		}
		if len(t.calls) > 1 {
			t.end(outcome)
		}
	}()
	return t.run()
}

// takeQueue adds the calls that wait behind the leader with a batch.
func (t *transaction[Tx]) takeQueue() {
	g := t.leader.guard
	t.taken = g.lines.takeWaiting(t.leader.held.turns[0], maxBatchCalls-1)
	for _, w := range t.taken {
		c := w.offer.(*call[Tx])
		c.noteRun(t.states)
		t.calls = append(t.calls, c)
	}
	for i, c := range t.calls {
		c.BatchSize, c.BatchPlace = len(t.calls), i
	}
}

func (t *transaction[Tx]) end(outcome error) {
	failed := tookNoEffect(outcome)
	blamed := t.blamed(outcome)
	for _, c := range t.calls {
		c.setEnd(outcome, blamed)
	}
	s := t.states[0]
	s.unreported = s.unreported || failed
	s.line.backoff.noteEnd(failed, len(t.calls), blamed != nil)
	for i, w := range t.taken {
		if t.calls[i+1].alone {
			w.offer = nil
		}
	}
	t.leader.guard.lines.endTaken(t.leader.held.turns[0], t.taken, failed)
}

func (t *transaction[Tx]) blamed(outcome error) *call[Tx] {
	var failed *storage.OpError
	if !errors.As(outcome, &failed) {
		return nil
	}
	return t.calls[failed.Number]
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
