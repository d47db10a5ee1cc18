package guard

import (
	"errors"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// rejectionOf returns the first rejection of one of grants in err, or nil. A rejection of
// another grant comes from a call that the operation made elsewhere, and says nothing about
// these. A claim of several grants can have several rejections.
func rejectionOf(err error, grants ...fence.Grant) *RejectedError {
	switch e := err.(type) {
	case *RejectedError:
		if slices.Contains(grants, e.Grant) {
			return e
		}
	case interface{ Unwrap() error }:
		return rejectionOf(e.Unwrap(), grants...)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if rejection := rejectionOf(err, grants...); rejection != nil {
				return rejection
			}
		}
	}
	return nil
}

// wentBack reports whether a rejection in err says that the database went back: it has lost writes,
// and the caller has to know before anything runs again. A claim of several grants may have others
// beside it.
func wentBack(err error) bool {
	switch e := err.(type) {
	case *RejectedError:
		return e.Reason == storage.ReasonWentBack
	case interface{ Unwrap() error }:
		return wentBack(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), wentBack)
	}
	return false
}

// callersGrantError is an error that another call under the same grants would meet again.
// They are the caller's, and only the caller can get others.
type callersGrantError struct{ err error }

func (e *callersGrantError) Error() string   { return e.err.Error() }
func (e *callersGrantError) Unwrap() error   { return e.err }
func (e *callersGrantError) Retryable() bool { return false }

// asCallersGrantError marks err if only other grants than the caller's can help.
func asCallersGrantError(err error, grants []fence.Grant) error {
	rejection := rejectionOf(err, grants...)
	over := rejection != nil && rejection.Reason != storage.ReasonOvertaken
	if over || errors.Is(err, fence.ErrLeaseLost) { // mutant: stale-grants-of-callers-look-safe-to-retry
		return &callersGrantError{err: err}
	}
	return err
}
