package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Sentinels for errors.Is. Package guard has them under the same names, in which their texts speak, and says what to do
// about each.
var (
	ErrStaleToken       = errors.New("guard: stale token")
	ErrOvertaken        = errors.New("guard: overtaken by another transaction of the same grant")
	ErrWrongLockService = errors.New("guard: grant doesn't fit what the database has seen")
	ErrFailedOver       = errors.New("guard: database failed over or went back since the claim")
	ErrTxEnded          = errors.New("guard: transaction has ended")
	ErrKeyReused        = errors.New("guard: key was used for another request")
	ErrStoreUnavailable = errors.New("guard: database unavailable")
	ErrHeld             = errors.New("storage: a lock of the resource is owned or awaited")
	ErrBusy             = errors.New("storage: the resource is in use")

	ErrMoved error = movedError{} // retryable
)

type movedError struct{}

func (movedError) Error() string   { return "guard: the fence moved while its resource was read" }
func (movedError) Retryable() bool { return true }

// KeyReusedError says that a key of guard.Once was used for another request. It is ErrKeyReused.
type KeyReusedError struct {
	Resource string
	Key      string
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("guard: %s: key %q was used for another request: use a new key for a new operation", e.Resource, e.Key)
}

func (e *KeyReusedError) Is(target error) bool { return target == ErrKeyReused }

// Reason says why the fence rejected a grant. Each belongs to one sentinel.
type Reason string

const (
	// ReasonStale: a higher grant has claimed the resource. ErrStaleToken.
	ReasonStale Reason = "stale"
	// ReasonOvertaken: another transaction of the same grant committed first. ErrOvertaken.
	ReasonOvertaken Reason = "overtaken"
	// ReasonCollision: another holder claimed the very same epoch and token. ErrWrongLockService.
	ReasonCollision Reason = "collision"
	// ReasonEpochBehind: the database has seen a higher epoch than the grant's. ErrWrongLockService.
	ReasonEpochBehind Reason = "epoch behind"
	// ReasonTokensWentBack: the grant is lower than one known to have claimed before this one was asked for.
	// ErrWrongLockService. Only a Guard can tell; the store records ReasonStale.
	ReasonTokensWentBack Reason = "tokens went back"
	// ReasonTokenJump: the token or the epoch is implausibly high. ErrWrongLockService.
	ReasonTokenJump Reason = "token jump"
	// ReasonWentBack: the fence has lost a position that the grant, or at a claim its process, saw committed.
	// ErrFailedOver.
	ReasonWentBack Reason = "went back"
	// ReasonFailedOver: the grant was claimed before the database failed over. ErrFailedOver.
	ReasonFailedOver Reason = "failed over"
)

var reasonErrors = map[Reason]error{
	ReasonStale:          ErrStaleToken,
	ReasonOvertaken:      ErrOvertaken,
	ReasonCollision:      ErrWrongLockService,
	ReasonEpochBehind:    ErrWrongLockService,
	ReasonTokensWentBack: ErrWrongLockService,
	ReasonTokenJump:      ErrWrongLockService,
	ReasonWentBack:       ErrFailedOver,
	ReasonFailedOver:     ErrFailedOver,
}

// Check returns why a transaction under c can't commit while current has the fence at position at; "" if it can.
// The store must check again while nothing can move the fence.
func (c Claim) Check(current fence.Grant, at Position) Reason {
	switch order := current.Compare(c.Grant); {
	case order > 0:
		return ReasonStale
	case order == 0 && current != c.Grant:
		return ReasonCollision
	case order == 0 && at.Seq > c.Seq:
		return ReasonOvertaken
	case order < 0 || at != c.Position:
		return ReasonWentBack
	}
	return ""
}

// Stage says where a grant was rejected.
type Stage string

const (
	StageClaim Stage = "claim"
	StageBegin Stage = "begin"
	StageRun   Stage = "run" // while the function ran
	StageSeal  Stage = "seal"
	StageCheck Stage = "check" // at the end of a read-only operation
)

// RejectedError says that the fence rejected a grant. Its Reason decides which sentinel it is.
type RejectedError struct {
	Reason  Reason
	Stage   Stage
	Grant   fence.Grant
	Current fence.Grant   // that had the fence
	Since   time.Time     // by the database's clock
	Age     time.Duration // from Since to the rejection
	Err     error         // of the rejected operation itself; or nil
	// Remedy is what an operator does about ErrWrongLockService, as the lock service says (fence.EpochKeeper); or "".
	Remedy string
	// Travelled means that the grant came through UnderGrant of a guard.Guard, so only its sender can get another.
	Travelled bool
	// RecordErr is why the rejection was not recorded; nil if it was.
	RecordErr error
}

func (e *RejectedError) Error() string {
	subject := fmt.Sprintf("%s: token %d", e.Grant.Resource, e.Grant.Token)
	if e.Grant.Resource == "" { // a check of an epoch
		subject = "every grant"
	}
	s := fmt.Sprintf("guard: %s %s", subject, e.explanation())
	if e.Err != nil && !errors.Is(e.Err, context.Canceled) {
		s += ": " + e.Err.Error()
	}
	if e.RecordErr != nil {
		s += fmt.Sprintf(" (the rejection could not be recorded: %v)", e.RecordErr)
	}
	return s
}

func (e *RejectedError) explanation() string {
	ago := fmt.Sprintf("claimed %.1f s ago", e.Age.Seconds())
	switch e.Reason {
	case ReasonStale:
		return fmt.Sprintf("was superseded by %d (%s, %s)", e.Current.Token, e.Current.Holder, ago)
	case ReasonOvertaken:
		return "was overtaken: another transaction of the same grant committed first"
	case ReasonCollision:
		return fmt.Sprintf("of %s was issued to %s too (%s): %s", e.Grant.Holder, e.Current.Holder, ago, e.remedy(1))
	case ReasonEpochBehind:
		return fmt.Sprintf("has epoch %d, but the database has seen epoch %d: acquire again; if that has the same epoch: %s", e.Grant.Epoch, e.Current.Epoch, e.remedy(0))
	case ReasonTokensWentBack:
		return fmt.Sprintf("was superseded by %d (%s, %s), as was known before token %d was asked for: the lock service was restored from a backup or is another one: %s",
			e.Current.Token, e.Current.Holder, ago, e.Grant.Token, e.remedy(1))
	case ReasonWentBack:
		return e.wentBack()
	case ReasonFailedOver:
		return fmt.Sprintf("was claimed before the database failed over (%s): what was read under it may be gone", ago)
	case ReasonTokenJump:
		text := fmt.Sprintf("of epoch %d is implausibly far above the database's mark (token %d of epoch %d)", e.Grant.Epoch, e.Current.Token, e.Current.Epoch)
		if e.Remedy != "" && e.Grant.Epoch > e.Current.Epoch {
			text += fmt.Sprintf(": if epoch %d is a mistake: %s", e.Grant.Epoch, e.Remedy)
		}
		return text
	}
	return "was rejected: " + string(e.Reason)
}

func (e *RejectedError) remedy(above int64) string {
	return cmp.Or(e.Remedy, fmt.Sprintf("set the lock service's epoch to %d", e.Current.Epoch+above))
}

func (e *RejectedError) wentBack() string {
	who, fence := "has seen", "no claim"
	if e.Stage == StageClaim {
		who = "can't claim: its process has seen"
	}
	if e.Current.Token > 0 {
		fence = fmt.Sprintf("token %d of %s", e.Current.Token, e.Current.Holder)
	}
	return fmt.Sprintf("%s more than the fence shows (%s): the database went back to an older state", who, fence)
}

func (e *RejectedError) Is(target error) bool { return target == reasonErrors[e.Reason] }

func (e *RejectedError) Unwrap() error { return e.Err }
