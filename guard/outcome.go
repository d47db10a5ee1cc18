package guard

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// UnknownOutcomeError says that COMMIT may or may not have taken effect, since
// its reply was lost and the database could not be asked. It is ErrUnknownOutcome.
// Resolve asks again.
type UnknownOutcomeError struct {
	Record storage.OpRecord // what the caller's options say about the operation
	Grants []fence.Grant    // that it ran under
	Once   bool             // the call had the option Once: calling again takes effect at most once
	Err    error            // why the outcome of COMMIT is in doubt
	AskErr error            // why the database could not be asked

	inDoubt storage.InDoubt
	resolve func(ctx context.Context, d storage.InDoubt) (bool, error)
}

func (e *UnknownOutcomeError) Error() string {
	of := ""
	if label := label(e.Record); label != "" {
		of = " of " + label
	}
	return fmt.Sprintf("guard: %s: outcome of COMMIT%s is unknown: %v; asking the database failed: %v", names(e.Grants), of, e.Err, e.AskErr)
}

// label returns the operation's name and id for a message; "" if it has neither.
func label(r storage.OpRecord) string {
	if r.Name == "" || r.ID == "" {
		return r.Name + r.ID
	}
	return r.Name + ", " + r.ID
}

// Is reports whether target is ErrUnknownOutcome.
func (e *UnknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }

// Unwrap returns both reasons.
func (e *UnknownOutcomeError) Unwrap() []error { return []error{e.Err, e.AskErr} }

// Resolve asks the database once more. Its answer is final: an operation that was
// not applied never will be (G4). It may be called again, from any goroutine, and
// also after the Guard was closed. It fails with ErrTxEnded if the operation was not applied and has
// sent a COMMIT or ROLLBACK itself: something else may have taken effect.
func (e *UnknownOutcomeError) Resolve(ctx context.Context) (applied bool, err error) {
	return e.resolve(ctx, e.inDoubt)
}

// notAppliedError says that a COMMIT that was in doubt took no effect and never will.
type notAppliedError struct {
	resources string
	err       error
}

func (e *notAppliedError) Error() string {
	return fmt.Sprintf("guard: %s: COMMIT took no effect: %v", e.resources, e.err)
}

func (e *notAppliedError) Unwrap() error { return e.err }

// Retryable reports that the operation may run again.
func (e *notAppliedError) Retryable() bool { return true }
