package guard

import (
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Sentinels for errors.Is. An error means that the operation took no effect and
// never will (G4), with two exceptions: ErrUnknownOutcome, and ErrTxEnded after a
// raw COMMIT in user code.
var (
	// ErrStaleToken: a higher grant has claimed the resource. Acquire anew, read
	// anew and decide anew. See RejectedError.
	ErrStaleToken = storage.ErrStaleToken
	// ErrOvertaken: another transaction of the same grant committed first. What
	// was read may be out of date; running the operation again is right. Inside a
	// Hold it is not, as what earlier transactions read isn't read anew: begin the
	// Hold anew. A receiver of the Hold's grant that writes to the same database
	// is such another transaction.
	ErrOvertaken = storage.ErrOvertaken
	// ErrCollision: another holder claimed the very same epoch and token, as can
	// happen when the lock service was restored from a backup. Raise the epoch.
	ErrCollision = storage.ErrCollision
	// ErrEpochBehind: the database has seen a higher epoch than the grant's. The
	// lock service was restored or mixed up with another one: raise its epoch. Or the
	// epoch was raised after the grant was acquired: acquire another, as Do and Hold do.
	ErrEpochBehind = storage.ErrEpochBehind
	// ErrWentBack: the fence is behind a position that this grant has seen
	// committed: the database was restored or failed over and lost its newest
	// transactions. What was read under the grant may be gone.
	ErrWentBack = storage.ErrWentBack
	// ErrFailedOver: the grant was claimed before the database failed over to
	// another server, or was restored. Nothing that the fence can see is missing,
	// but what was read under the grant may be gone. Acquire anew, read
	// anew and decide anew.
	ErrFailedOver = storage.ErrFailedOver
	// ErrTokenJump: the grant's token or epoch is so far above the database's mark,
	// which follows what has claimed in steps, that it is taken for a mistake: accepted, it would shut
	// everybody else out for good.
	ErrTokenJump = storage.ErrTokenJump
	// ErrUnknownOutcome: COMMIT was sent, its reply was lost, and the database
	// could not be asked in time. The operation took effect or it did not. See
	// UnknownOutcomeError, which can ask again.
	ErrUnknownOutcome = errors.New("guard: outcome of COMMIT is unknown")
	// ErrTxEnded: the transaction was ended by SQL of the user's, or was used
	// after its end. What a raw COMMIT of the user's wrote stays, without a seal:
	// the second exception to G4.
	ErrTxEnded = storage.ErrTxEnded
	// ErrOpReuse: the key of Once was used before for another request. See
	// OpReuseError.
	ErrOpReuse = storage.ErrOpReuse
	// ErrTokensWentBack: a grant is lower than one that was known here to have
	// claimed before this one was asked for, so the lock service issues lower tokens
	// than it did: it was restored from a backup, or is another one. Raise its epoch.
	// The error is an ErrStaleToken too; a Guard's first rejection is nothing else.
	ErrTokensWentBack = errors.New("guard: lock service went back")
	// ErrStoreTimeout: the database didn't answer within Config.StoreTimeout.
	// Nothing was done, and the resource is passed on if others wait for it.
	ErrStoreTimeout = errors.New("guard: database did not answer in time")
	// ErrClosed: the Guard was closed.
	ErrClosed = fence.ErrClosed
	// ErrInvalid: an argument or a Config is out of bounds.
	ErrInvalid = fence.ErrInvalid
)

// RejectedError says which grant the fence rejected, why, and who held the fence since
// when. Which of the sentinels it is, its Reason says.
type RejectedError = storage.RejectedError

// OpReuseError says that a key of Once was used before, for another request. It is
// ErrOpReuse.
type OpReuseError = storage.OpReuseError

// tokensWentBackError is a stale rejection that the lock service is to blame for.
type tokensWentBackError struct {
	rejection *RejectedError
	err       error
}

func (e *tokensWentBackError) Error() string {
	return fmt.Sprintf("%v, as was known before token %d was asked for: the lock service was restored from a backup or is another one: raise its epoch above %d",
		e.err, e.rejection.Grant.Token, e.rejection.Current.Epoch)
}

// Is reports whether target is ErrTokensWentBack.
func (e *tokensWentBackError) Is(target error) bool { return target == ErrTokensWentBack }

// Unwrap returns the rejection.
func (e *tokensWentBackError) Unwrap() error { return e.err }
