package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// commit commits txn, with the same move for each resource; with none if the operation only reads.
func (e *engine[Tx]) commit(ctx context.Context, states grantStates, txn storage.Txn[Tx], o options, move storage.Move) error {
	if o.readOnly {
		return e.commitMoves(ctx, states, txn, o, nil)
	}
	return e.commitMoves(ctx, states, txn, o, slices.Repeat([]storage.Move{move}, len(states)))
}

// commitMoves commits txn, with a move for each resource. COMMIT has three outcomes: it took
// effect, it did not, or its answer was lost. In the last case commitMoves asks the store. The end
// of the caller's ctx must neither put a COMMIT in doubt nor keep it from being resolved.
func (e *engine[Tx]) commitMoves(ctx context.Context, states grantStates, txn storage.Txn[Tx], o options, moves []storage.Move) error {
	detached := context.WithoutCancel(ctx)                              // mutant: commit-ends-with-the-callers-context
	commitCtx, cancel := context.WithTimeout(detached, e.commitTimeout) // mutant: commit-without-a-bound
	defer cancel()
	states.setClaimed(false) // until the outcome is known, the positions are not
	claims, err := txn.Commit(commitCtx, moves)
	if err == nil {
		for i, s := range states {
			s.moved(claims[i])
		}
		return nil
	}
	var doubt *storage.InDoubtError
	if errors.As(err, &doubt) { // mutant: doubt-is-taken-for-failure
		doubt.Err = e.nameLimit(doubt.Err)
		return e.resolve(detached, states, o, doubt) // mutant: doubt-is-taken-for-success
	}
	err = e.nameLimit(err)
	states.setClaimed(true) // nothing was committed, so the positions are what they were
	return e.noteRejection(ctx, states, err)
}

// nameLimit adds Config.CommitTimeout to err, if that has ended the COMMIT.
func (e *engine[Tx]) nameLimit(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w (guard.Config.CommitTimeout is %v)", err, e.commitTimeout)
}

// resolve asks what became of a COMMIT until there is an answer or the time is up.
func (e *engine[Tx]) resolve(ctx context.Context, states grantStates, o options, doubt *storage.InDoubtError) error {
	ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)
	defer cancel()
	unknown := &UnknownOutcomeError{
		Record: o.record, Grants: states.grants(), Once: o.once != nil, Err: doubt.Err, inDoubt: doubt.InDoubt, resolve: e.store.Resolve,
	}
	if states[0].callers {
		e.keeper.leaveDoubt(unknown)
	}
	start := time.Now()
	for tries := 1; ; tries++ {
		applied, err := e.store.Resolve(ctx, doubt.InDoubt)
		switch {
		case err == nil || errors.Is(err, ErrTxEnded):
			e.keeper.settled(unknown)
			e.report.resolved(ctx, states.grants(), o.record, applied, nil, time.Since(start))
			switch {
			case err != nil:
				return err
			case !applied:
				return &notAppliedError{resources: names(states.grants()), err: doubt.Err}
			}
			for _, s := range states {
				s.applied(doubt.InDoubt)
			}
			return nil
		case states.rejectedBy(err) || !pause(ctx, tries):
			unknown.AskErr = e.noteRejection(ctx, states, err)
			for _, s := range states {
				s.unresolved, s.untold = unknown, true
			}
			e.report.unknown(ctx, unknown, time.Since(start))
			return unknown
		}
	}
}

// settle asks once more about the transactions that earlier calls left in doubt, or others under a grant of
// the caller's: after its own, those that they have left since. If the answer can't be had, the grant is
// given up where the Guard can acquire another: once that one has claimed, the transaction has either
// committed or never will.
func (e *engine[Tx]) settle(ctx context.Context, s *grantState) error {
	for doubt := e.doubtOf(s); doubt != nil; doubt = e.doubtOf(s) {
		if err := e.settleOne(ctx, s, doubt); err != nil {
			return err
		}
	}
	return nil
}

// doubtOf returns what is in doubt under the grant of s, or nil.
func (e *engine[Tx]) doubtOf(s *grantState) *UnknownOutcomeError {
	if s.unresolved == nil && s.callers {
		return e.keeper.doubtUnder(s)
	}
	return s.unresolved
}

func (e *engine[Tx]) settleOne(ctx context.Context, s *grantState, doubt *UnknownOutcomeError) error {
	ctx, cancel := context.WithTimeout(ctx, e.resolveTimeout)
	defer cancel()
	start := time.Now()
	applied, err := e.store.Resolve(ctx, doubt.inDoubt)
	if errors.Is(err, ErrTxEnded) {
		err = nil // that is for the call that left it
	}
	e.report.resolved(ctx, doubt.Grants, doubt.Record, applied, err, time.Since(start))
	if err != nil {
		s.dead = true
		return e.stepFailed(ctx, grantStates{s}, "an earlier operation is unresolved", err)
	}
	e.keeper.settled(doubt)
	if applied && s.unresolved != nil { // after another call's the claim says where the fence is
		s.applied(doubt.inDoubt)
	}
	s.unresolved = nil
	return nil
}
