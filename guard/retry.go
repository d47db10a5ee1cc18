package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

const maxRuns = 8

// Pauses double from minPause to maxPause, each less a random part of up to a half: calls that conflict
// must not try again at the same time.
const (
	minPause = 5 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// pause waits after the given number of tries, which is at least 1. It reports false if ctx
// has ended.
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

// retry calls run, and again, after a pause, as long as it fails with an error for which again returns true:
// never after ErrTxEnded, since what a raw COMMIT wrote stays, whatever else is in the error.
func (o *options) retry(ctx context.Context, again func(error) bool, run func() error) error {
	for n := 1; ; n++ {
		err := run()
		if err == nil || !o.retryable || n == maxRuns || errors.Is(err, ErrTxEnded) || !again(err) { // mutant: operations-run-again-after-a-raw-commit
			return err
		}
		if !pause(ctx, n) {
			return fmt.Errorf("%w: %w", endError(ctx), err)
		}
	}
}

// retryableUnderNewGrants reports whether a call that acquires its grants may run again: new
// ones help if the old ones are stale, lost, or from before a failover.
func retryableUnderNewGrants(err error) bool {
	stale := errors.Is(err, ErrStaleToken) && !errors.Is(err, ErrWrongLockService)
	over := stale || failedOver(err) || errors.Is(err, fence.ErrLeaseLost)
	return !wentBack(err) && (retryableUnderSameGrants(err) || over && !errors.Is(err, ErrUnknownOutcome)) // mutant: unknown-commits-are-retried-as-stale
}

// failedOver reports whether the database failed over and the fence misses nothing.
func failedOver(err error) bool {
	var rejected *RejectedError
	return errors.As(err, &rejected) && rejected.Reason == storage.ReasonFailedOver
}

// retryableUnderSameGrants reports whether a call may run again under the grants that it
// has. It reads all that it needs in the transaction that runs again.
func retryableUnderSameGrants(err error) bool {
	return temporary(err) || errors.Is(err, ErrOvertaken) && !errors.Is(err, ErrUnknownOutcome)
}

// retryHold is retry for a Hold. Its function begins by reading what its earlier runs have
// committed, so it may also run again when the outcome of a COMMIT is unknown, but not
// beside a loss. The error still says what an earlier run has left unknown.
func (o *options) retryHold(ctx context.Context, again func(error) bool, run func() error) error {
	var unknown error
	orUnknown := func(err error) bool {
		if errors.Is(err, ErrUnknownOutcome) {
			unknown = err
		}
		return again(err) || errors.Is(err, ErrUnknownOutcome) && !wentBack(err)
	}
	err := o.retry(ctx, orUnknown, run)
	if err != nil && unknown != nil && !errors.Is(err, ErrUnknownOutcome) {
		return fmt.Errorf("%w (in an earlier run: %w)", err, unknown)
	}
	return err
}

// SafeToRetry reports whether the same call, made again, may succeed and can't take effect
// twice, for callers with retries of their own. These need a limit and a pause.
//
// It is true for an error of the function if a method Retryable() bool in its chain returns
// true. It is false for nil, for other errors of the function, for the end of ctx, for a closed
// Guard or Locker, for a grant or a lease of the caller's that is over, for what an operator
// or a programmer has to fix, and for [ErrUnknownOutcome] unless the call had [Once].
//
// The function of a [Hold] without [Retryable] may have committed other transactions before:
// call it again only if it begins by reading them.
func SafeToRetry(err error) bool {
	var rejected *RejectedError
	var away *fence.UnavailableError
	var says interface{ Retryable() bool }
	switch {
	case errors.Is(err, ErrTxEnded), errors.Is(err, ErrKeyReused):
		return false
	case errors.Is(err, ErrUnknownOutcome):
		return allOnce(err)
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed), errors.Is(err, ErrWrongLockService), wentBack(err), within(err, final):
		return false
	case errors.As(err, &rejected):
		return errors.Is(err, ErrStaleToken) || errors.Is(err, ErrOvertaken) || failedOver(err)
	case errors.As(err, &away):
		return away.Reason == fence.Unreachable || away.Reason == fence.QueueLost || temporary(away.Err)
	case errors.Is(err, fence.ErrLeaseLost):
		return true
	case errors.Is(err, ErrStoreUnavailable):
		return !errors.As(err, &says) || says.Retryable() // such as a wrong password
	}
	return errors.As(err, &says) && says.Retryable()
}

// allOnce reports whether each unknown outcome in err, of which errors.Join may have put
// several together, is that of a call with Once.
func allOnce(err error) bool {
	return !within(err, func(err error) bool {
		unknown, ok := err.(*UnknownOutcomeError)
		return err == ErrUnknownOutcome || ok && !unknown.Once
	})
}

// temporary reports whether err says that the run took no effect and that another one may
// succeed. A run of unknown outcome may have taken effect (G4).
func temporary(err error) bool {
	var t interface{ Retryable() bool }
	return !errors.Is(err, ErrUnknownOutcome) && errors.As(err, &t) && t.Retryable() // mutant: unknown-commits-are-retried-as-temporary
}

// maxAlone bounds how many calls run alone after groups have failed.
const maxAlone = 256

// backoff makes some calls run alone after groups have failed, more of them each time: the same
// operation might make every group fail.
type backoff struct {
	alone int16 // how many calls to come run alone
	last  int16 // what alone was last set to; 1 after a single failure with a call to blame

	aloneFailed bool // the latest call that ran alone failed
}

// nextAlone reports whether the call that asks runs alone, and counts it if so.
func (b *backoff) nextAlone() bool {
	if b.alone == 0 {
		return false
	}
	b.alone--
	return true
}

// noteEnd notes how a group of n calls has ended. If it is known which of them made it fail (blamed), the
// others should succeed without that one, so only a second such failure in a row makes calls run alone.
func (b *backoff) noteEnd(failed bool, n int, blamed bool) {
	switch {
	case !failed:
		b.last, b.aloneFailed = 0, false
		return
	case blamed && b.last == 0:
		b.last = 1
		return
	case blamed:
		n = 2
	}
	b.last = min(maxAlone, 2*(b.last+int16(n)-1))
	b.alone = b.last
}
