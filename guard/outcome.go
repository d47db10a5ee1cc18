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
	Op      storage.OpRecord // what its caller said about the operation
	InDoubt storage.InDoubt  // for Store.Resolve; its claims say under which grants
	Err     error            // why the outcome of COMMIT is in doubt
	AskErr  error            // why the database could not be asked

	resolve func(ctx context.Context, d storage.InDoubt) (bool, error)
}

func newUnknownOutcomeError[Tx any](store storage.Store[Tx], op storage.OpRecord, doubt *storage.InDoubtError, askErr error) *UnknownOutcomeError {
	return &UnknownOutcomeError{Op: op, InDoubt: doubt.InDoubt, Err: doubt.Err, AskErr: askErr, resolve: store.Resolve}
}

// Grants returns the grants that the operation ran under: one, or those of a
// DoAll.
func (e *UnknownOutcomeError) Grants() []fence.Grant {
	grants := make([]fence.Grant, len(e.InDoubt.Claims))
	for i, c := range e.InDoubt.Claims {
		grants[i] = c.Grant
	}
	return grants
}

func (e *UnknownOutcomeError) Error() string {
	of := ""
	if label := label(e.Op); label != "" {
		of = " of " + label
	}
	return fmt.Sprintf("guard: %s: outcome of COMMIT%s is unknown: %v; asking the database failed: %v", names(e.Grants()), of, e.Err, e.AskErr)
}

// label names the operation in a message; "" if its caller gave no name or id.
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
// also after the Guard was closed.
func (e *UnknownOutcomeError) Resolve(ctx context.Context) (applied bool, err error) {
	return e.resolve(ctx, e.InDoubt)
}

// notAppliedError says that a COMMIT in doubt took no effect and never will.
type notAppliedError struct {
	resources string
	err       error
}

func (e *notAppliedError) Error() string {
	return fmt.Sprintf("guard: %s: COMMIT took no effect: %v", e.resources, e.err)
}

func (e *notAppliedError) Unwrap() error { return e.err }

// Retryable says that another run is right.
func (e *notAppliedError) Retryable() bool { return true }
