package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Sentinels for errors.Is. An error means that the operation took no effect and
// never will (G4), with two exceptions: ErrUnknownOutcome, and ErrTxEnded after a
// raw COMMIT in user code.
var (
	// ErrStaleToken: a higher grant has claimed the resource. Whoever gets it
	// acquires anew, reads anew and decides anew. See StaleTokenError.
	ErrStaleToken = errors.New("guard: stale token")
	// ErrOvertaken: another transaction of the same grant committed first. What
	// was read may be out of date; running the operation again is right. Inside a
	// Hold it is not, as what earlier transactions read isn't read anew: begin the
	// Hold anew. A receiver of the Hold's grant that writes to the same database
	// is such another transaction.
	ErrOvertaken = errors.New("guard: overtaken by another transaction of the same grant")
	// ErrCollision: another holder claimed the very same epoch and token, as can
	// happen when the lock service was restored from a backup. Raise the epoch.
	ErrCollision = errors.New("guard: token was issued twice")
	// ErrEpochBehind: the database has seen a higher epoch than the grant's. The
	// lock service was restored or mixed up with another one: raise its epoch. Or the
	// epoch was raised after the grant was acquired: acquire another, as Do and Hold do.
	ErrEpochBehind = errors.New("guard: epoch is behind the database's")
	// ErrWentBack: the fence is behind a position that this grant has seen
	// committed: the database was restored or failed over and lost its newest
	// transactions. What was read under the grant may be gone.
	ErrWentBack = errors.New("guard: database went back to an older state")
	// ErrFailedOver: the grant was claimed before the database failed over to
	// another server, or was restored. Nothing that the fence can see is missing,
	// but what was read under the grant may be gone. Whoever gets it acquires
	// anew, reads anew and decides anew.
	ErrFailedOver = errors.New("guard: database failed over since the claim")
	// ErrTokenJump: the grant's token or epoch is so far above the database's mark,
	// which follows what has claimed in steps, that it is taken for a mistake: accepted, it would shut
	// everybody else out for good.
	ErrTokenJump = errors.New("guard: token is implausibly high")
	// ErrUnknownOutcome: COMMIT was sent, its reply was lost, and the database
	// could not be asked in time. The operation took effect or it did not. See
	// UnknownOutcomeError, which can ask again.
	ErrUnknownOutcome = errors.New("guard: outcome of COMMIT is unknown")
	// ErrNested: Do was called inside a function that this Guard runs. Use the
	// transaction at hand, or h.Do directly inside a Hold; for another resource
	// name both in one DoAll.
	ErrNested = errors.New("guard: nested call")
	// ErrTxEnded: the transaction was ended by SQL of the user's, or was used
	// after its end. What a raw COMMIT of the user's wrote stays, without a seal:
	// the second exception to G4.
	ErrTxEnded = errors.New("guard: transaction has ended")
	// ErrOpReuse: the key of Once was used before for another request. See
	// OpReuseError.
	ErrOpReuse = errors.New("guard: key was used for another request")
	// ErrTokensWentBack: a grant is lower than one that was known here to have
	// claimed before this one was asked for, so the lock service issues lower tokens
	// than it did: it was restored from a backup, or is another one. Raise its epoch.
	// The error is an ErrStaleToken too; a Guard's first refusal is nothing else.
	ErrTokensWentBack = errors.New("guard: lock service went back")
	// ErrStoreTimeout: the database didn't answer within Config.StoreTimeout.
	// Nothing was done, and the resource is passed on if others wait for it.
	ErrStoreTimeout = errors.New("guard: database did not answer in time")
	// ErrOverran: the function ran for longer than Config.MaxRun. It is the cause
	// of the end of its context; the resource has been released meanwhile.
	ErrOverran = errors.New("guard: function ran for too long")
	// ErrClosed: the Guard was closed.
	ErrClosed = errors.New("guard: closed")
	// ErrInvalid: an argument or a Config is out of bounds.
	ErrInvalid = errors.New("guard: invalid argument")
)

// Reason says why the fence refused a grant.
type Reason string

// The reasons.
const (
	ReasonStale       Reason = "stale"        // ErrStaleToken
	ReasonOvertaken   Reason = "overtaken"    // ErrOvertaken
	ReasonCollision   Reason = "collision"    // ErrCollision
	ReasonEpochBehind Reason = "epoch behind" // ErrEpochBehind
	ReasonWentBack    Reason = "went back"    // ErrWentBack
	ReasonFailedOver  Reason = "failed over"  // ErrFailedOver
	ReasonTokenJump   Reason = "token jump"   // ErrTokenJump
)

var reasonErrors = map[Reason]error{
	ReasonStale:       ErrStaleToken,
	ReasonOvertaken:   ErrOvertaken,
	ReasonCollision:   ErrCollision,
	ReasonEpochBehind: ErrEpochBehind,
	ReasonWentBack:    ErrWentBack,
	ReasonFailedOver:  ErrFailedOver,
	ReasonTokenJump:   ErrTokenJump,
}

// Stage says where a grant was refused.
type Stage string

// The stages.
const (
	StageClaim Stage = "claim" // before anything ran
	StageHead  Stage = "head"  // at the beginning of the transaction
	StageRun   Stage = "run"   // the database had ended the transaction meanwhile
	StageSeal  Stage = "seal"  // at COMMIT
)

// RefusedError says that the fence refused a grant. Which of the sentinels it
// is, its Reason says; a stale one comes wrapped in a *StaleTokenError.
type RefusedError struct {
	Reason  Reason
	Stage   Stage
	Grant   fence.Grant   // who was refused
	Current fence.Grant   // who held the fence
	Since   time.Time     // when Current claimed it, by the database's clock
	Age     time.Duration // how long before the refusal that was
	Err     error         // what the refused operation itself had met, if anything
	// RecordErr is why the refusal could not be recorded; nil if it was (G5).
	RecordErr error
}

// Refuse returns the error for r: a *StaleTokenError if r.Reason is
// ReasonStale, else r itself. Stores call it.
func Refuse(r *RefusedError) error {
	if r.Reason == ReasonStale {
		return &StaleTokenError{r}
	}
	return r
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("guard: %s: token %d %s", e.Grant.Resource, e.Grant.Token, e.story())
	if e.Err != nil && !errors.Is(e.Err, context.Canceled) { // the refusal says why it was
		s += ": " + e.Err.Error()
	}
	if e.RecordErr != nil {
		s += fmt.Sprintf(" (the refusal could not be recorded: %v)", e.RecordErr)
	}
	return s
}

func (e *RefusedError) story() string {
	ago := fmt.Sprintf("claimed %.1f s ago", e.Age.Seconds())
	switch e.Reason {
	case ReasonStale:
		return fmt.Sprintf("was superseded by %d (%s, %s)", e.Current.Token, e.Current.Holder, ago)
	case ReasonOvertaken:
		return "was overtaken: another transaction of the same grant committed first"
	case ReasonCollision:
		return fmt.Sprintf("of %s was issued to %s too (%s): raise the lock service's epoch", e.Grant.Holder, e.Current.Holder, ago)
	case ReasonEpochBehind:
		return fmt.Sprintf("has epoch %d, but the database has seen epoch %d: if etcdctl get PREFIX/epoch (PREFIX is etcd.Config.Prefix, fencekit by default) says %d or more by now, acquire anew; else raise it with etcdctl put PREFIX/epoch %d",
			e.Grant.Epoch, e.Current.Epoch, e.Current.Epoch, e.Current.Epoch+1)
	case ReasonWentBack:
		return fmt.Sprintf("has seen more than the fence shows (token %d of %s): the database went back to an older state", e.Current.Token, e.Current.Holder)
	case ReasonFailedOver:
		return fmt.Sprintf("was claimed before the database failed over (%s): what was read under it may be gone", ago)
	case ReasonTokenJump:
		return fmt.Sprintf("of epoch %d is implausibly far above the database's mark (token %d of epoch %d)", e.Grant.Epoch, e.Current.Token, e.Current.Epoch)
	}
	return "was refused: " + string(e.Reason)
}

// Is reports whether target is the sentinel of e.Reason.
func (e *RefusedError) Is(target error) bool { return target == reasonErrors[e.Reason] }

// Unwrap returns what the refused operation itself had met.
func (e *RefusedError) Unwrap() error { return e.Err }

// tokensWentBackError is a stale refusal that the lock service is to blame for.
type tokensWentBackError struct {
	refusal *RefusedError
	err     error
}

func (e *tokensWentBackError) Error() string {
	return fmt.Sprintf("%v, as was known before token %d was asked for: the lock service was restored from a backup or is another one: raise its epoch above %d",
		e.err, e.refusal.Grant.Token, e.refusal.Current.Epoch)
}

// Is reports whether target is ErrTokensWentBack.
func (e *tokensWentBackError) Is(target error) bool { return target == ErrTokensWentBack }

// Unwrap returns the refusal.
func (e *tokensWentBackError) Unwrap() error { return e.err }

// StaleTokenError says that a grant was refused because a higher one has claimed
// the resource (G3). It is ErrStaleToken.
type StaleTokenError struct{ *RefusedError }

// Unwrap returns the RefusedError.
func (e *StaleTokenError) Unwrap() error { return e.RefusedError }
