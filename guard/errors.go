package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Sentinels for errors.Is. Any error means that nothing was or will be written, except ErrUnknownOutcome,
// and ErrTxEnded if user code sent COMMIT.
var (
	// ErrStaleToken: a higher grant has claimed the resource. Acquire, read and decide again. See
	// RejectedError.
	ErrStaleToken = storage.ErrStaleToken
	// ErrOvertaken: another transaction of the same grant committed first. Run the operation again; a Hold has to
	// begin again.
	ErrOvertaken = storage.ErrOvertaken
	// ErrWrongLockService: the grant doesn't fit what the database has seen. The lock service was restored from a
	// backup or mixed up with another one, or the grant was forged. An operator has to act, for instance raise the
	// epoch. Reasons: collision, epoch behind, tokens went back, token jump.
	ErrWrongLockService = storage.ErrWrongLockService
	// ErrFailedOver: the database failed over or was restored since the claim, so what was read may be gone. Reason
	// failed over: the fence misses nothing; acquire, read and decide again. Reason went back: the fence has lost a
	// move that this process saw committed, so writes are lost, and an operator has to act. A Guard remembers the
	// positions of the last 20,000 resources.
	ErrFailedOver = storage.ErrFailedOver
	// ErrUnknownOutcome: COMMIT got no answer, and the database could not be asked in time. The operation took
	// effect or it did not. See UnknownOutcomeError.
	ErrUnknownOutcome = errors.New("guard: outcome of COMMIT is unknown")
	// ErrTxEnded: the user's SQL ended the transaction, or it was used when or after the function returned. What a
	// COMMIT of the user's wrote stays, without a seal.
	ErrTxEnded = storage.ErrTxEnded
	// ErrKeyReused: the key of Once was used for another request. See [storage.KeyReusedError].
	ErrKeyReused = storage.ErrKeyReused
	// ErrStoreUnavailable: the database can't be reached or didn't answer within Config.StoreTimeout. Nothing was
	// done.
	ErrStoreUnavailable = storage.ErrStoreUnavailable
	// ErrClosed: the Guard was closed.
	ErrClosed = fence.ErrClosed
	// ErrInvalid: an argument or a Config is out of bounds.
	ErrInvalid = fence.ErrInvalid
)

// RejectedError says which grant the fence rejected, why, and who held the fence since when.
type RejectedError = storage.RejectedError

func anyError(err error, is func(error) bool) bool {
	if err == nil || is(err) {
		return err != nil
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return anyError(e.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return anyError(err, is) })
	}
	return false
}

// rejectionOf returns the first rejection of one of grants in err, or nil. Other rejections come from calls that
// the operation made elsewhere.
func rejectionOf(err error, grants ...fence.Grant) (rejection *RejectedError) {
	anyError(err, func(err error) bool {
		e, ok := err.(*RejectedError)
		if ok = ok && slices.Contains(grants, e.Grant); ok {
			rejection = e
		}
		return ok
	})
	return rejection
}

// wentBack reports whether err says that the database lost writes: the caller must know before anything
// runs again.
func wentBack(err error) bool {
	return anyError(err, func(err error) bool {
		e, ok := err.(*RejectedError)
		return ok && e.Reason == storage.ReasonWentBack
	})
}

type verdict struct {
	error
	retryable bool
}

func final(err error) bool {
	v, ok := err.(*verdict)
	return ok && !v.retryable
}

func (v *verdict) Unwrap() error   { return v.error }
func (v *verdict) Retryable() bool { return v.retryable }

// UnknownOutcomeError says that COMMIT may or may not have taken effect. It is ErrUnknownOutcome.
type UnknownOutcomeError struct {
	Record storage.OpRecord
	Grants []fence.Grant
	Once   bool  // the call had the option Once, so calling again is safe
	Err    error // why COMMIT is in doubt
	AskErr error // why the database could not be asked

	inDoubt storage.InDoubt
	resolve func(ctx context.Context, d storage.InDoubt) (bool, error) // nil if the store is gone
}

func (e *UnknownOutcomeError) Error() string {
	of := ""
	if label := label(e.Record); label != "" {
		of = " of " + label
	}
	return fmt.Sprintf("guard: %s: outcome of COMMIT%s is unknown: %v; asking the database failed: %v", names(e.Grants), of, e.Err, e.AskErr)
}

func label(r storage.OpRecord) string {
	if r.Name == "" || r.ID == "" {
		return r.Name + r.ID
	}
	return r.Name + ", " + r.ID
}

// Is reports whether target is ErrUnknownOutcome.
func (e *UnknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }

// Unwrap returns Err and AskErr.
func (e *UnknownOutcomeError) Unwrap() []error { return []error{e.Err, e.AskErr} }

// Resolve asks the database once more. Its answer is final: an operation that was not applied never will be.
// It may be called repeatedly, from any goroutine, also after Close. It fails with ErrTxEnded if the
// operation was not applied and has sent a COMMIT or ROLLBACK itself, since something else may have taken
// effect.
func (e *UnknownOutcomeError) Resolve(ctx context.Context) (applied bool, err error) {
	if e.resolve == nil {
		return false, errStoreGone
	}
	return e.resolve(ctx, e.inDoubt)
}

var errStoreGone = errors.New("guard: the store panicked, or ended its goroutine, at COMMIT")

var errNoGuard = fmt.Errorf("%w: nil Guard or Runner", ErrInvalid)

func names(grants []fence.Grant) string { return strings.Join(resourcesOf(grants), ", ") }

func resourcesOf(grants []fence.Grant) []string {
	resources := make([]string, len(grants))
	for i, g := range grants {
		resources[i] = g.Resource
	}
	return resources
}

func endError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return withCause(ctx, fmt.Errorf("guard: %w", err))
	}
	return nil
}

// leftQueueError is for a call whose ctx ended while it waited for its turn. It may have waited for the
// very function that made it, with a context from outside of that function.
func leftQueueError(ctx context.Context, resource string) error {
	return withCause(ctx, fmt.Errorf("guard: %s: gave up waiting behind another call of this process (a call made inside its function has to use that function's context): %w", resource, ctx.Err()))
}

func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	aboutEnd := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if cause == nil || !aboutEnd || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
