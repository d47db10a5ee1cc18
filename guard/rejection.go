package guard

import (
	"errors"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// rejectionOf returns the rejection of one of grants in err, or nil. A rejection of
// another grant is what an operation met elsewhere and says nothing about these.
func rejectionOf(err error, grants ...fence.Grant) *RejectedError {
	var rejection *RejectedError
	if errors.As(err, &rejection) && slices.Contains(grants, rejection.Grant) {
		return rejection
	}
	return nil
}

// callersGrantError is an error after which calling again under the same grants is in
// vain: they are the caller's, who has to get others.
type callersGrantError struct{ err error }

func (e *callersGrantError) Error() string   { return e.err.Error() }
func (e *callersGrantError) Unwrap() error   { return e.err }
func (e *callersGrantError) Retryable() bool { return false }

// asCallersGrantError marks an error that only other grants than the caller's can cure.
func asCallersGrantError(err error, grants []fence.Grant) error {
	rejection := rejectionOf(err, grants...)
	over := rejection != nil && rejection.Reason != storage.ReasonOvertaken
	if over || errors.Is(err, fence.ErrLeaseLost) {
		return &callersGrantError{err: err}
	}
	return err
}
