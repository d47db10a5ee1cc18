package guard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// readyAll calls ready for each grant.
func (e *engine[Tx]) readyAll(ctx context.Context, states grantStates) error {
	for _, s := range states {
		if err := e.ready(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// ready settles a transaction of the grant that is in doubt (G6), and claims the grant
// if need be (G1).
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
		// A second claim would return the present position, as if what the Hold read at
		// an earlier one were still up to date.
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

// wentBack corrects the reason of a claim's rejection as stale if it shows that the lock service went back: a
// grant that had claimed before this one was asked for has the higher token. Times can't
// show it: this machine may have been paused between acquiring and claiming.
func (s *grantState) wentBack(err error) error {
	rejection := rejectionOf(err, s.grant)
	if rejection == nil || rejection.Reason != storage.ReasonStale || s.claimedBefore.Compare(s.grant) <= 0 {
		return err
	}
	known := *rejection
	known.Reason = storage.ReasonTokensWentBack
	return &known
}

// stepFailed returns the error for a step of the store that failed before op ran. A
// rejection needs no further text.
func (e *engine[Tx]) stepFailed(ctx context.Context, states grantStates, step string, err error) error {
	if !states.rejectedBy(err) {
		err = withCause(ctx, fmt.Errorf("guard: %s: %s: %w", names(states.grants()), step, err))
	}
	return e.noteRejection(states, err)
}

// noteRejection reports and remembers the rejections of states in err, and returns err.
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
