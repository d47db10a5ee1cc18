package guard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// readyAll makes every grant ready.
func (e *engine[Tx]) readyAll(ctx context.Context, states grantStates) error {
	for _, s := range states {
		if err := e.ready(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// ready makes sure that no transaction of the grant is unresolved (G6) and that
// the grant is claimed (G1).
func (e *engine[Tx]) ready(ctx context.Context, s *grantState) error {
	if s.unresolved != nil {
		if err := e.settle(ctx, s); err != nil {
			return err
		}
	}
	if s.claimed {
		return nil
	}
	if s.inHold {
		// A claim would return the present position, and what was read at an
		// earlier one would pass for up to date.
		return cmp.Or(s.rejected, ErrOvertaken)
	}
	start := time.Now()
	ctx, cancel := e.withStoreTimeout(ctx)
	defer cancel()
	claim, err := e.store.Claim(ctx, s.grant)
	if err != nil {
		return e.stepFailed(ctx, grantStates{s}, "claim", s.wentBack(err))
	}
	s.claim, s.claimed = claim, true
	e.report.claimed(s.grant, time.Since(start))
	return nil
}

// wentBack adds to the rejection of a claim that the lock service went back, if so:
// tokens rise in the order in which they are issued, so one that was known to have
// claimed before this one was asked for can't be the higher one. No clock could tell:
// this machine's may have stood still between asking and claiming.
func (s *grantState) wentBack(err error) error {
	rejection := rejectionOf(err, s.grant)
	if rejection == nil || rejection.Reason != storage.ReasonStale || s.claimedBefore.Compare(s.grant) <= 0 {
		return err
	}
	return &tokensWentBackError{rejection: rejection, err: err}
}

// stepFailed returns the error for a step of the store that failed before op ran. A
// rejection speaks for itself.
func (e *engine[Tx]) stepFailed(ctx context.Context, states grantStates, step string, err error) error {
	if !states.rejectedBy(err) {
		err = withCause(ctx, fmt.Errorf("guard: %s: %s: %w", names(states.grants()), step, err))
	}
	return e.noteRejection(states, err)
}

// noteRejection draws the consequences of err, and returns it.
func (e *engine[Tx]) noteRejection(states grantStates, err error) error {
	for _, s := range states {
		if rejection := rejectionOf(err, s.grant); rejection != nil {
			if s.travelled {
				rejection.Travelled = true
			}
			e.report.rejected(rejection)
			s.reject(rejection.Reason, err)
		}
	}
	return err
}
