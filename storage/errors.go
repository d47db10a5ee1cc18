package storage

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is, for the errors that a store returns. Package guard has them
// under the same names, and says what to do about each.
var (
	ErrStaleToken       = errors.New("storage: stale token")
	ErrOvertaken        = errors.New("storage: overtaken by another transaction of the same grant")
	ErrWrongLockService = errors.New("storage: grant doesn't fit what the database has seen")
	ErrFailedOver       = errors.New("storage: database failed over or went back since the claim")
	ErrTxEnded          = errors.New("storage: transaction has ended")
	ErrKeyReused        = errors.New("storage: key was used for another request")
	ErrStoreUnavailable = errors.New("storage: database unavailable")
)

// KeyReusedError says that a key of guard.Once was used before, for another request. It is
// ErrKeyReused.
type KeyReusedError struct {
	Resource string
	Key      string
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("storage: %s: key %q was used for another request: use a new key for a new operation", e.Resource, e.Key)
}

// Is reports whether target is ErrKeyReused.
func (e *KeyReusedError) Is(target error) bool { return target == ErrKeyReused }
