package guard

import (
	"errors"

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
	// ErrWrongLockService: the grant doesn't fit what the database has seen: the lock
	// service was restored from a backup, mixed up with another one, or the grant was
	// forged. An operator has to act, as by raising the epoch; trying again doesn't help.
	// RejectedError's Reason says which: collision, epoch behind, tokens went back, token jump.
	ErrWrongLockService = storage.ErrWrongLockService
	// ErrFailedOver: the database failed over to another server, or was restored, since
	// the grant was claimed, so what was read under the grant may be gone. RejectedError's
	// Reason says which. Failed over: the fence misses nothing; acquire anew, read anew and
	// decide anew. Went back: the fence has lost a move that this process has seen committed,
	// under this grant or an earlier one, so writes are lost, and an operator has to act. A
	// Guard remembers the positions of the 20,000 resources that it used last, also of those
	// that it has given up, and compares when it claims again.
	ErrFailedOver = storage.ErrFailedOver
	// ErrUnknownOutcome: COMMIT was sent, its reply was lost, and the database
	// could not be asked in time. The operation took effect or it did not. See
	// UnknownOutcomeError, which can ask again.
	ErrUnknownOutcome = errors.New("guard: outcome of COMMIT is unknown")
	// ErrTxEnded: the transaction was ended by SQL of the user's, or was used
	// after its end. What a raw COMMIT of the user's wrote stays, without a seal:
	// the second exception to G4.
	ErrTxEnded = storage.ErrTxEnded
	// ErrKeyReused: the key of Once was used before for another request. See
	// KeyReusedError.
	ErrKeyReused = storage.ErrKeyReused
	// ErrStoreUnavailable: the database can't be reached, or didn't answer within
	// Config.StoreTimeout. Nothing was done, and the resource is passed on if others
	// wait for it.
	ErrStoreUnavailable = storage.ErrStoreUnavailable
	// ErrClosed: the Guard was closed.
	ErrClosed = fence.ErrClosed
	// ErrInvalid: an argument or a Config is out of bounds.
	ErrInvalid = fence.ErrInvalid
)

// RejectedError says which grant the fence rejected, why, and who held the fence since
// when. Its Reason decides which of the sentinels it is.
type RejectedError = storage.RejectedError

// KeyReusedError says that a key of Once was used before, for another request. It is
// ErrKeyReused.
type KeyReusedError = storage.KeyReusedError
