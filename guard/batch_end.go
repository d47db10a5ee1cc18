package guard

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/storage"
)

// tell tells each call how it goes on after the group has ended with outcome. Calls that were taken
// from a queue and run again get the first places in it.
func (gr *batchGroup[Tx]) tell(outcome error) {
	failed := tookNoEffect(outcome)
	blamed := gr.blamed(outcome)
	k := gr.engine.keeper
	if len(gr.parts) > 1 {
		gr.engine.forming.noteEnd(failed, gr.calls, blamed != nil)
	}
	for _, p := range gr.parts {
		var again []*waiter
		for i, b := range p.calls {
			b.setEnd(outcome, blamed)
			if i > 0 && failed {
				b.again = b.placeForAnotherRun()
				again = append(again, b.again)
			}
		}
		first := p.calls[0]
		if failed {
			first.call.states[0].untold = true // its calls run again
		}
		l := first.line
		if !failed || len(gr.parts) == 1 {
			l.backoff.noteEnd(failed, len(p.calls), blamed != nil)
		}
		k.putFirst(l, again)
		k.wakeTaken(p.taken)
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
		own.Record, own.Grants = b.runs.record, b.call.Grants
		b.err = &own
	}
}

// placeForAnotherRun returns a waiter for the call's next run. Another group may take the call from
// the queue unless it is to run alone.
func (b *batchCall[Tx]) placeForAnotherRun() *waiter {
	w := &waiter{ready: make(chan struct{})}
	if b.state == runsShared {
		w.batch = &batchCall[Tx]{call: b.call, runs: b.runs, op: b.op, ctx: b.ctx}
	}
	return w
}

// leftOut tells a call how it goes on after a group has left it out.
func (b *batchCall[Tx]) leftOut(state batchState, err error) {
	b.state, b.err = state, err
	close(b.ready)
}

// tookNoEffect reports whether a transaction that ended with err took no effect and never
// will. The calls that shared it then run again.
func tookNoEffect(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrTxEnded)
}

// errStoreGone is why the outcome of a COMMIT can't be learned.
var errStoreGone = errors.New("guard: the store panicked, or ended its goroutine, at COMMIT")

func resolveGone(context.Context, storage.InDoubt) (bool, error) { return false, errStoreGone }
