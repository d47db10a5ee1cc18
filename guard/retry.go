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
// enough. anew says that a run that was refused as stale can be followed by one
// under a new grant.
func retry(ctx context.Context, o options, anew bool, once func() error) error {
	for runs := 1; ; runs++ {
		err := once()
		if err == nil || !o.retryable || runs == maxRuns || !worthAnotherRun(err, anew) {
			return err
		}
		if !pause(ctx, runs) {
			return fmt.Errorf("%w: %w", ended(ctx), err)
		}
	}
}

// worthAnotherRun reports whether err says that the run took no effect and that
// another may.
func worthAnotherRun(err error, anew bool) bool {
	if errors.Is(err, ErrUnknownOutcome) {
		return false // it may have taken effect (G4)
	}
	if errors.Is(err, ErrOvertaken) {
		return true
	}
	if anew && (errors.Is(err, ErrStaleToken) || errors.Is(err, fence.ErrLeaseLost)) {
		return true
	}
	var temporary interface{ Retryable() bool }
	return errors.As(err, &temporary) && temporary.Retryable()
}
