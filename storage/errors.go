package storage

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is, for the errors that a store returns. Package guard has them
// under the same names, and says what to do about each.
var (
	ErrStaleToken  = errors.New("guard: stale token")
	ErrOvertaken   = errors.New("guard: overtaken by another transaction of the same grant")
	ErrCollision   = errors.New("guard: token was issued twice")
	ErrEpochBehind = errors.New("guard: epoch is behind the database's")
	ErrWentBack    = errors.New("guard: database went back to an older state")
	ErrFailedOver  = errors.New("guard: database failed over since the claim")
	ErrTokenJump   = errors.New("guard: token is implausibly high")
	ErrTxEnded     = errors.New("guard: transaction has ended")
	ErrOpReuse     = errors.New("guard: key was used for another request")
)

// OpReuseError says that a key of guard.Once was used before, for another request. It is
// ErrOpReuse.
type OpReuseError struct {
	Resource string
	Key      string
}

func (e *OpReuseError) Error() string {
	return fmt.Sprintf("guard: %s: key %q was used for another request: use a new key for a new operation", e.Resource, e.Key)
}

// Is reports whether target is ErrOpReuse.
func (e *OpReuseError) Is(target error) bool { return target == ErrOpReuse }
