package guard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// readyAll settles the transactions of the grants that are in doubt (G6), and claims the
// grants that need it (G1), all at once.
func (e *engine[Tx]) readyAll(ctx context.Context, states grantStates) error {
	var unclaimed grantStates
	for _, s := range states {
		if err := e.settle(ctx, s); err != nil {
			return err
		}
		if !s.claimed { // mutant: run-before-the-claim
			unclaimed = append(unclaimed, s)
		}
	}
	for _, s := range unclaimed {
		if s.inHold { // mutant: hold-claims-again
			// A second claim would return the present position, as if what the Hold read at
			// an earlier one were still up to date.
			return cmp.Or(s.rejected, ErrOvertaken)
		}
	}
	if len(unclaimed) == 0 {
		return nil
	}
	return e.claim(ctx, unclaimed)
}

// claim claims the grants of states. If some are rejected, it claims the others all the
// same: the next call needs them.
func (e *engine[Tx]) claim(ctx context.Context, states grantStates) error {
	start := time.Now()
	step := newRunContext(ctx)
	e.keeper.contexts.add(step)
	defer step.finish(nil)
	defer e.steps.stop(e.steps.start(step))
	claims, err := e.store.Claim(step, states.claims()...)
	took := time.Since(start)
	for i, claim := range claims {
		if claim != (storage.Claim{}) {
			states[i].moved(claim)
			e.report.claimed(ctx, states[i].claim.Grant, took)
		}
	}
	if err != nil {
		for _, s := range states {
			s.nameWentBack(err) // mutant: claim-whose-reply-was-lost-is-good
		}
		return e.stepFailed(step, states, "claim", err)
	}
	return nil
}

// nameWentBack corrects the reason in err if a claim was rejected as stale because the lock service
// went back: the grant that has the fence had claimed before this one was asked for, and has the
// higher token. Times can't show this: the machine may have been paused between acquiring and
// claiming.
func (s *grantState) nameWentBack(err error) {
	rejection := rejectionOf(err, s.claim.Grant)
	if rejection != nil && rejection.Reason == storage.ReasonStale && s.claimedBefore != nil && s.claimedBefore.Compare(s.claim.Grant) > 0 {
		rejection.Reason = storage.ReasonTokensWentBack
	}
}

// stepFailed returns the error for a step of the store that failed before op ran. A
// rejection needs no further text.
func (e *engine[Tx]) stepFailed(ctx context.Context, states grantStates, step string, err error) error {
	if !states.rejectedBy(err) {
		err = withCause(ctx, fmt.Errorf("guard: %s: %s: %w", names(states.grants()), step, err))
	}
	return e.noteRejection(ctx, states, err)
}

// noteRejection reports and remembers the rejections of states in err, and returns err.
func (e *engine[Tx]) noteRejection(ctx context.Context, states grantStates, err error) error {
	for _, s := range states {
		if rejection := rejectionOf(err, s.claim.Grant); rejection != nil {
			if s.travelled {
				rejection.Travelled = true
			}
			e.report.rejected(ctx, rejection)
			s.reject(rejection.Reason, err)
		}
	}
	return err
}
