package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/storage"
)

// end commits the group, or rolls it back if the transaction is over, gives each member its
// verdict, and passes on the turn.
func (gr *group[Tx]) end(ctx context.Context, over error) {
	gr.mu.Lock()
	members, failure := gr.members, gr.failure
	gr.members, gr.decided = nil, true
	gr.mu.Unlock()
	gr.unwatch()
	ended := func(m *member[Tx]) error { return gr.unsettled(m) }
	defer func() { // also if the store panics
		gr.txn.Rollback(ctx)
		gr.whole.finish(nil)
		gr.tell(members, ended)
		gr.engine.keeper.passTurn(ctx, gr.line)
	}()
	switch err := errors.Join(failure, over); {
	case err != nil:
		err = gr.engine.noteRejection(ctx, gr.states, err)
		ended = func(m *member[Tx]) error { return gr.rolledBack(m, err) }
	default:
		ended = gr.committed(ctx, members)
	}
}

// committed commits what members wrote, and returns how each member ends.
func (gr *group[Tx]) committed(ctx context.Context, members []*member[Tx]) func(m *member[Tx]) error {
	var move storage.Move
	var one *member[Tx] // for the reports
	for _, m := range members {
		if m.err != nil {
			continue
		}
		if one == nil || one.repeated {
			one = m
		}
		if m.repeated {
			continue // its answer still needs the group's COMMIT: what was read may be lost, or stale
		}
		move.Ops = append(move.Ops, m.runs.record)
		if m.runs.once != nil {
			move.Kept = append(move.Kept, storage.Kept{Key: *m.runs.once, Result: m.kept})
		}
	}
	if one == nil {
		return func(m *member[Tx]) error { return m.err } // nothing to commit, and nothing that an error rests on
	}
	err := gr.engine.commit(ctx, gr.states, gr.txn, one.runs.options, move)
	var unknown *UnknownOutcomeError
	switch {
	case err == nil:
		return func(m *member[Tx]) error { return m.err }
	case errors.As(err, &unknown):
		return func(m *member[Tx]) error { return gr.unknown(m, unknown) }
	}
	own := len(members) == 1 || errors.Is(err, ErrTxEnded) || rejectionOf(err, gr.states.grants()...) != nil
	return func(m *member[Tx]) error {
		if m.err == nil && own {
			return err
		}
		return gr.undecided(m, err) // which member has made COMMIT fail isn't known
	}
}

// unknown returns how m ends if the group's outcome is unknown.
func (gr *group[Tx]) unknown(m *member[Tx], group *UnknownOutcomeError) error {
	if m.err != nil {
		return gr.undecided(m, group)
	}
	own := *group
	own.Record, own.Once = m.runs.record, m.runs.once != nil
	return &own
}

// rolledBack returns how m ends if COMMIT was not sent, because of err.
func (gr *group[Tx]) rolledBack(m *member[Tx], err error) error {
	if m.err != nil && (!m.rests || errors.Is(m.err, ErrTxEnded)) {
		return m.err
	}
	if rejection := rejectionOf(err, gr.states.grants()...); rejection != nil {
		own := *rejection
		own.Err = nil // it is another member's
		return &own
	}
	if m.err == nil && errors.Is(err, ErrTxEnded) {
		return fmt.Errorf("guard: %s: %w by SQL of another call in the group; what was written may stay, without a fence", gr.line.resource, ErrTxEnded)
	}
	return gr.undecided(m, err)
}

// undecided returns the error of a member that took no effect because its group did not
// commit, for the reason why. If the member failed, that error stands only if it rests on
// nothing that the group wrote.
func (gr *group[Tx]) undecided(m *member[Tx], why error) error {
	if m.err != nil && !m.rests {
		return m.err
	}
	return &groupError{resource: gr.line.resource, why: why}
}

// errStoreGone is why the outcome of a group's COMMIT can't be learned.
var errStoreGone = errors.New("guard: the store panicked, or ended its goroutine, at COMMIT")

// unsettled returns how m ends if the store did not return from COMMIT.
func (gr *group[Tx]) unsettled(m *member[Tx]) error {
	if m.err != nil {
		return gr.undecided(m, errStoreGone)
	}
	return &UnknownOutcomeError{
		Record: m.runs.record, Grants: m.call.Grants, Once: m.runs.once != nil,
		Err: errStoreGone, AskErr: errStoreGone,
		resolve: resolveGone,
	}
}

func resolveGone(context.Context, storage.InDoubt) (bool, error) { return false, errStoreGone }

// fail gives up on a transaction that a function may still use: it has run for too long, or
// Close waits no longer. COMMIT was not sent, and won't be. The members before it don't have
// to wait for it: it may never return.
func (gr *group[Tx]) fail(cause error) {
	gr.mu.Lock()
	if gr.decided {
		gr.mu.Unlock()
		return
	}
	members := gr.members
	gr.members, gr.decided, gr.failure = nil, true, cause
	gr.mu.Unlock()
	gr.tell(members, func(m *member[Tx]) error { return gr.rolledBack(m, cause) })
}

// tell gives members their verdicts. Those that run again get the first places in the queue,
// in their order.
func (gr *group[Tx]) tell(members []*member[Tx], ended func(m *member[Tx]) error) {
	verdicts := make([]verdict, len(members))
	var again []*waiter
	for i, m := range members {
		m.call.inBatch(len(members), i)
		v := &verdicts[i]
		v.err = ended(m)
		if m.err != errNotReturned && m.runs.mayFollow(v.err) {
			v.again = &waiter{ready: make(chan struct{})}
			again = append(again, v.again)
		}
	}
	gr.engine.keeper.putFirst(gr.line, again)
	for i, m := range members {
		m.verdict <- verdicts[i]
	}
}

// groupError says that a call took no effect, because the calls that shared its transaction
// were rolled back with it. It hides why from errors.Is, since that is another call's affair,
// but for ErrClosed.
type groupError struct {
	resource string
	why      error
}

func (e *groupError) Error() string {
	return fmt.Sprintf("guard: %s: took no effect, as its group did not commit: %v", e.resource, e.why)
}

// Is reports whether the Guard was closed, if that is what target is.
func (e *groupError) Is(target error) bool { return target == ErrClosed && errors.Is(e.why, ErrClosed) }

// Retryable reports that the operation may run again.
func (e *groupError) Retryable() bool { return true }
