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
	for !c.runsAlone {
		if err := c.tryShared(); err != errRunsAgain {
			return err
		}
	}
	return c.runAlone()
}

func (c *call[Tx]) tryShared() error {
	switch err := c.acquire(c); {
	case err == errShared:
		return c.sharedOutcome
	case err != nil:
		return err
	case c.runsAlone:
		return errRunsAgain
	}
	t := c.newTransaction(bounds{limit: c.guard.cfg.MaxRun})
	t.mayShare = !c.states[0].lock.backoff.nextAlone()
	err := t.runShared()
	switch {
	case len(t.calls) > 1:
		return c.sharedOutcome
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
			t.endShared(outcome)
		}
	}()
	return t.run()
}

// takeSharers adds the calls that wait behind the leader with a batch.
func (t *transaction[Tx]) takeSharers() {
	g := t.leader.guard
	t.sharers = g.locks.takeSharers(t.leader.acquired.held[0], maxBatchCalls-1)
	for _, w := range t.sharers {
		c := w.shareable.(*call[Tx])
		c.noteRun(t.states)
		t.calls = append(t.calls, c)
	}
	for i, c := range t.calls {
		c.BatchSize, c.BatchPlace = len(t.calls), i
	}
}

func (t *transaction[Tx]) endShared(outcome error) {
	failed := tookNoEffect(outcome)
	blamed := t.blamedCall(outcome)
	for _, c := range t.calls {
		c.setSharedOutcome(outcome, blamed)
	}
	s := t.states[0]
	s.unreported = s.unreported || failed
	s.lock.backoff.noteEnd(failed, len(t.calls), blamed != nil)
	for i, w := range t.sharers {
		if t.calls[i+1].runsAlone {
			w.shareable = nil
		}
	}
	t.leader.guard.locks.endSharers(t.leader.acquired.held[0], t.sharers, failed)
}

func (t *transaction[Tx]) blamedCall(outcome error) *call[Tx] {
	var failed *storage.OpError
	if !errors.As(outcome, &failed) {
		return nil
	}
	return t.calls[failed.Number]
}

func (c *call[Tx]) setSharedOutcome(outcome error, blamed *call[Tx]) {
	c.sharedOutcome = outcome
	if tookNoEffect(outcome) {
		c.runsAlone, c.sharedOutcome = blamed == nil || blamed == c, errRunsAgain
	}
	var unknown *UnknownOutcomeError
	if errors.As(outcome, &unknown) {
		own := *unknown
		own.Record, own.Grants = c.Record, c.Grants
		c.sharedOutcome = &own
	}
}

func tookNoEffect(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrTxEnded)
}
