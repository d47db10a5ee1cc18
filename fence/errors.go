package fence

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels for errors.Is.
var (
	// ErrLocked: TryAcquire found the resource taken, or ctx ended while Acquire waited; then the error is ctx's
	// as well. See LockedError.
	ErrLocked = errors.New("fence: resource is locked")
	// ErrLeaseLost: the lease ended without being released. See LeaseLostError.
	ErrLeaseLost = errors.New("fence: lease lost")
	// ErrReleased: the holder released the lease.
	ErrReleased = errors.New("fence: lease released")
	// ErrUnavailable: the lock service can't be reached or can't serve the request. Nothing was acquired. Within an
	// ErrLeaseLost it is why the lease wasn't renewed. See UnavailableError.
	ErrUnavailable = errors.New("fence: lock service unavailable")
	// ErrClosed: the Guard or Locker was closed.
	ErrClosed = errors.New("fence: closed")
	// ErrInvalid: an argument, configuration or grant is out of bounds, or the call isn't allowed here.
	ErrInvalid = errors.New("fence: invalid argument")
)

// LockedError says who holds a resource. It is ErrLocked.
type LockedError struct {
	Resource string
	Holder   string // empty if unknown, for instance while another goroutine is acquiring
}

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("fence: %s is locked", e.Resource)
	}
	return fmt.Sprintf("fence: %s is locked by %s", e.Resource, e.Holder)
}

func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// LossReason says how a lease was lost.
type LossReason string

const (
	// LossDeadline: no renewal succeeded until the conservative deadline.
	LossDeadline LossReason = "deadline passed without a renewal"
	// LossExpired: the lock service says that the lease no longer exists.
	LossExpired LossReason = "lease expired or revoked"
	// LossDeleted: the lock key was deleted, but not by its holder.
	LossDeleted LossReason = "lock key deleted"
	// LossClosed: the Locker was closed.
	LossClosed LossReason = "locker closed"
	// LossWentBack: the lock service shows an older state than before, as after a restore.
	LossWentBack LossReason = "lock service went back to an older state"
	// LossEpoch: the lock service's epoch was raised, which ends all leases granted before.
	LossEpoch LossReason = "lock service's epoch changed"
)

// LeaseLostError says which grant was lost, and how. It is ErrLeaseLost.
type LeaseLostError struct {
	Grant  Grant
	Reason LossReason
	Err    error // why the lease wasn't renewed; nil if unknown

	// Paused is the least time for which this process didn't run when it should have renewed; or 0.
	Paused time.Duration
}

func (e *LeaseLostError) Error() string {
	text := fmt.Sprintf("fence: %s: token %d of %s lost: %s", e.Grant.Resource, e.Grant.Token, e.Grant.Holder, e.Reason)
	if e.Paused > 0 {
		text += fmt.Sprintf(": this process did not run for %v or more: it was stopped, or got no CPU", e.Paused)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *LeaseLostError) Unwrap() error { return e.Err }

func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// InvalidGrantError says which part of a grant is out of bounds. It is ErrInvalid.
type InvalidGrantError struct {
	Part   string // resource, epoch, token, holder, text form or JSON form
	Reason string
}

func (e *InvalidGrantError) Error() string {
	return fmt.Sprintf("fence: invalid grant: %s %s", e.Part, e.Reason)
}

func (e *InvalidGrantError) Is(target error) bool { return target == ErrInvalid }

// UnavailableError says which call the lock service failed and why. It is ErrUnavailable.
type UnavailableError struct {
	Call    string            // such as "acquire sku/42"
	Reason  UnavailableReason // "" if unknown
	InDoubt bool              // the call may still take effect
	Err     error
}

// UnavailableReason says what has to be fixed.
type UnavailableReason string

const (
	// Unreachable: no answer came. The lock service is away, or the network is cut.
	Unreachable UnavailableReason = "no answer"
	// NoSpace: the lock service is out of space and takes no writes.
	NoSpace UnavailableReason = "out of space"
	// Limited: a request for a single lock exceeds a configured limit of the lock service.
	Limited UnavailableReason = "limits too low"
	// Denied: the client isn't authenticated, or lacks a right.
	Denied UnavailableReason = "access denied"
	// WentBack: the lock service shows an older state than before, and would issue tokens a second time.
	WentBack UnavailableReason = "went back to an older state"
	// InvalidEpoch: the epoch in the lock service is no valid number.
	InvalidEpoch UnavailableReason = "invalid epoch"
	// Proxied: a proxy answers in place of the lock service. Holders may learn late that a lease has ended.
	Proxied UnavailableReason = "a proxy answers"
	// Imitated: a server answers that speaks the lock service's protocol, but doesn't do what it says.
	Imitated UnavailableReason = "an imitation answers"
	// QueueLost: the call lost its position in the queue. Acquire again.
	QueueLost UnavailableReason = "queue position lost"
)

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("fence: %s: lock service unavailable: %v", e.Call, e.Err)
}

func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

func (e *UnavailableError) Unwrap() error { return e.Err }
