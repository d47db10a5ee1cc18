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

// Pauses double from minPause to maxPause, less up to a half at random, so that calls that conflict don't meet
// again.
const (
	minPause = 5 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

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

// retry doesn't run again after ErrTxEnded, because what a raw COMMIT wrote stays.
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

func retryableUnderNewGrants(err error) bool {
	stale := errors.Is(err, ErrStaleToken) && !errors.Is(err, ErrWrongLockService)
	over := stale || failedOver(err) || errors.Is(err, fence.ErrLeaseLost)
	return !wentBack(err) && (retryableUnderSameGrants(err) || over && !errors.Is(err, ErrUnknownOutcome)) // mutant: unknown-commits-are-retried-as-stale
}

func failedOver(err error) bool {
	var rejected *RejectedError
	return errors.As(err, &rejected) && rejected.Reason == storage.ReasonFailedOver
}

func retryableUnderSameGrants(err error) bool {
	return temporary(err) || errors.Is(err, ErrOvertaken) && !errors.Is(err, ErrUnknownOutcome)
}

// retryHold is retry for a Hold, whose function begins by reading what its earlier runs committed. So it may run
// again also when an outcome is unknown, but not if the database lost writes. The error still names an earlier
// unknown outcome.
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

// SafeToRetry reports whether the same call may succeed if it is made again, and can't take effect twice. It is for
// callers with retries of their own, which need a limit and a pause.
//
// An error of the function is safe if a method Retryable() bool in its chain returns true. Never safe: nil, other
// errors of the function, the end of ctx, a closed Guard or Locker, a grant or lease of the caller's that is over,
// what an operator or programmer has to fix, and [ErrUnknownOutcome] unless the call had [Once].
//
// The function of a [Hold] without [Retryable] may have committed before its error: call it again only if it begins
// by reading that.
func SafeToRetry(err error) bool {
	var rejected *RejectedError
	var away *fence.UnavailableError
	var says interface{ Retryable() bool }
	switch {
	case errors.Is(err, ErrTxEnded), errors.Is(err, ErrKeyReused):
		return false
	case errors.Is(err, ErrUnknownOutcome):
		return allOnce(err)
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed), errors.Is(err, ErrWrongLockService), wentBack(err), anyError(err, final):
		return false
	case errors.As(err, &rejected):
		return errors.Is(err, ErrStaleToken) || errors.Is(err, ErrOvertaken) || failedOver(err)
	case errors.As(err, &away):
		return away.Reason == fence.Unreachable || away.Reason == fence.QueueLost || temporary(away.Err)
	case errors.Is(err, fence.ErrLeaseLost):
		return true
	case errors.Is(err, ErrStoreUnavailable):
		return !lasting(err) // such as a wrong password
	}
	return errors.As(err, &says) && says.Retryable()
}

// SafeToStartOver reports whether a leader may campaign again, or a worker take its job again, after err: under a new
// grant, and by first reading what the last run committed. So it is also true if the grant or lease is over, and
// after [ErrUnknownOutcome], which is settled by then, or shows in what is read.
//
// It is true as well for the rejections that an operator has to end, except one of the reason went back: the work
// then goes on once that is done. Else it is what [SafeToRetry] says. The caller pauses between runs.
func SafeToStartOver(err error) bool {
	switch {
	case errors.Is(err, ErrTxEnded), errors.Is(err, ErrKeyReused), errors.Is(err, ErrInvalid), wentBack(err):
		return false
	case errors.As(err, new(*RejectedError)), errors.Is(err, ErrUnknownOutcome), errors.Is(err, fence.ErrLeaseLost):
		return true
	}
	return SafeToRetry(err)
}

func allOnce(err error) bool {
	return !anyError(err, func(err error) bool {
		unknown, ok := err.(*UnknownOutcomeError)
		return err == ErrUnknownOutcome || ok && !unknown.Once
	})
}

func temporary(err error) bool {
	var t interface{ Retryable() bool }
	return !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, fence.ErrLeaseLost) && errors.As(err, &t) && t.Retryable() // mutant: unknown-commits-are-retried-as-temporary
}

// lasting reports whether err says of itself that it would come again.
func lasting(err error) bool {
	var says interface{ Retryable() bool }
	return errors.As(err, &says) && !says.Retryable()
}

const maxAlone = 256

// backoff makes calls run alone after shared transactions have failed, more each time, since one operation might make
// each of them fail.
type backoff struct {
	alone int16
	last  int16 // the last value that alone was set to; 1 after a single blamed failure
}

func (b *backoff) nextAlone() bool {
	if b.alone == 0 {
		return false
	}
	b.alone--
	return true
}

// noteEnd notes how a transaction of n calls ended. Without the call to blame, if it is known, the others should succeed,
// so only a second such failure in a row makes calls run alone.
func (b *backoff) noteEnd(failed bool, n int, blamed bool) {
	switch {
	case !failed:
		b.last = 0
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
