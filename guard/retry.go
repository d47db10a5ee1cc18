package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// maxRuns bounds how often a Retryable operation runs.
const maxRuns = 8

// The pauses before another try: they double up to the maximum, and each is cut
// by a random part of up to a half, so that competitors fall out of step.
const (
	minPause = 5 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// pause waits before the try after the one with number tries, from 1. It reports
// whether ctx goes on.
func pause(ctx context.Context, tries int) bool {
	d := min(maxPause, minPause<<min(tries-1, 16))
	timer := time.NewTimer(d - rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// retry calls once until it succeeds, fails for good, or has been called often
// enough. again says whether a run that failed may be followed by another.
func retry(ctx context.Context, o options, again func(error) bool, once func() error) error {
	for runs := 1; ; runs++ {
		err := once()
		if err == nil || !o.retryable || runs == maxRuns || !again(err) {
			return err
		}
		if !pause(ctx, runs) {
			return fmt.Errorf("%w: %w", endError(ctx), err)
		}
	}
}

// retryableUnderNewGrants is for calls that can acquire anew: a stale grant is no obstacle, nor
// is one of before a failover.
func retryableUnderNewGrants(err error) bool {
	stale := errors.Is(err, ErrStaleToken) && !errors.Is(err, ErrTokensWentBack)
	over := stale || errors.Is(err, ErrFailedOver) || errors.Is(err, fence.ErrLeaseLost)
	return retryableUnderSameGrants(err) || over && !errors.Is(err, ErrUnknownOutcome)
}

// retryableUnderSameGrants is for calls that have the one grant, and read all they need in
// the transaction that is run again.
func retryableUnderSameGrants(err error) bool {
	return temporary(err) || errors.Is(err, ErrOvertaken) && !errors.Is(err, ErrUnknownOutcome)
}

// retryHold is retry for a Hold, whose function begins by reading what its earlier runs
// have committed: then it may run again also when that is unknown. If a later run fails,
// what an earlier one has left unknown stays in the error.
func retryHold(ctx context.Context, o options, again func(error) bool, once func() error) error {
	var unknown error
	err := retry(ctx, o, func(err error) bool { return again(err) || errors.Is(err, ErrUnknownOutcome) }, func() error {
		latest := once()
		if errors.Is(latest, ErrUnknownOutcome) {
			unknown = latest
		}
		return latest
	})
	if err != nil && unknown != nil && !errors.Is(err, ErrUnknownOutcome) {
		return fmt.Errorf("%w (in an earlier run: %w)", err, unknown)
	}
	return err
}

// SafeToRetry reports whether the same call, made again, may succeed and can't take effect
// twice. It is for callers that call again by themselves, such as one with a queue of
// requests; give them a limit and a pause.
//
// It is false for nil, for an error of the function's own that has no method Retryable() bool that
// returns true, for the end of ctx, for a Guard or Locker that was closed, for a grant or a lease of the caller's that is over,
// for what an operator or a programmer has to mend, and for [ErrUnknownOutcome] unless
// the call had the option [Once].
func SafeToRetry(err error) bool {
	var unknown *UnknownOutcomeError
	var callers *callersGrantError
	var rejected *RejectedError
	var away *fence.UnavailableError
	var says interface{ Retryable() bool }
	switch {
	case errors.As(err, &unknown):
		return unknown.Once
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrTxEnded), errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed),
		errors.Is(err, ErrTokensWentBack), errors.As(err, &callers):
		return false
	case errors.As(err, &rejected):
		return errors.Is(err, ErrStaleToken) || errors.Is(err, ErrOvertaken) || errors.Is(err, ErrFailedOver)
	case errors.As(err, &away):
		return away.Reason == fence.Unreachable || away.Reason == fence.QueueLost || temporary(away.Err)
	case errors.Is(err, fence.ErrLeaseLost), errors.Is(err, ErrStoreTimeout):
		return true
	}
	return errors.As(err, &says) && says.Retryable()
}

// temporary reports whether err says that the run took no effect and that another
// may. One whose outcome is unknown may have taken effect (G4).
func temporary(err error) bool {
	var t interface{ Retryable() bool }
	return !errors.Is(err, ErrUnknownOutcome) && errors.As(err, &t) && t.Retryable()
}
