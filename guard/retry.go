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
			return fmt.Errorf("%w: %w", ended(ctx), err)
		}
	}
}

// againAnew is for calls that can acquire anew: a stale grant is no obstacle, nor
// is one of before a failover.
func againAnew(err error) bool {
	stale := errors.Is(err, ErrStaleToken) && !errors.Is(err, ErrTokensWentBack)
	over := stale || errors.Is(err, ErrFailedOver) || errors.Is(err, fence.ErrLeaseLost)
	return againUnderGrant(err) || over && !errors.Is(err, ErrUnknownOutcome)
}

// againUnderGrant is for calls that have the one grant, and read all they need in
// the transaction that is run again.
func againUnderGrant(err error) bool {
	return temporary(err) || errors.Is(err, ErrOvertaken) && !errors.Is(err, ErrUnknownOutcome)
}

// temporary reports whether err says that the run took no effect and that another
// may. One whose outcome is unknown may have taken effect (G4).
func temporary(err error) bool {
	var t interface{ Retryable() bool }
	return !errors.Is(err, ErrUnknownOutcome) && errors.As(err, &t) && t.Retryable()
}
