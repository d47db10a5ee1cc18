// Package transport is what guardhttp and guardgrpc share: how grants are read from what
// a client sent, and what an error of guard is to that client.
package transport

import (
	"context"
	"errors"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Problem is what an error is to a client. It tells nothing of servers.
type Problem struct {
	Name   string // for programs, such as "stale-grant"
	Title  string
	Detail string
	// Again: the same request, sent again, may succeed, and does no harm.
	Again bool
}

// The problems. None of them says that a request took no effect: a handler may have
// committed other transactions before the one that failed.
var (
	InvalidGrant = &Problem{Name: "invalid-grant", Title: "Grant missing or invalid",
		Detail: "A grant is missing, malformed or for another resource."}
	UnsignedGrant = &Problem{Name: "unsigned-grant", Title: "Grant not signed",
		Detail: "A grant has no signature, or one of a key that is not accepted."}
	StaleGrant = &Problem{Name: "stale-grant", Title: "Stale grant",
		Detail: "A later grant has claimed the resource. Acquire, read and decide again."}
	RejectedGrant = &Problem{Name: "rejected-grant", Title: "Grant rejected",
		Detail: "The grant does not fit what has claimed the resource. Acquire, read and decide again; if that is rejected too, an operator has to act."}
	KeyReused = &Problem{Name: "key-reused", Title: "Key reused",
		Detail: "The key was used for another request. Use a new key for a new request."}
	UnknownOutcome = &Problem{Name: "unknown-outcome", Title: "Unknown outcome",
		Detail: "The request may have taken effect. Sent again, it may do so twice."}
	UnknownOnce = &Problem{Name: "unknown-outcome", Title: "Unknown outcome", Again: true,
		Detail: "The request may have taken effect. Send the same request again: it takes effect once."}
	Unavailable = &Problem{Name: "unavailable", Title: "Temporarily unavailable", Again: true,
		Detail: "Send the same request again."}
	Stopping = &Problem{Name: "stopping", Title: "Server is stopping", Again: true,
		Detail: "Send the same request again."}
	Internal = &Problem{Name: "internal", Title: "Internal error"}
)

// unavailable are the errors after which another request may succeed, besides those that guard calls safe to
// retry.
var unavailable = []error{
	fence.ErrLocked, fence.ErrLeaseLost, fence.ErrUnavailable, fence.ErrNoLeader,
	guard.ErrStaleToken, guard.ErrOvertaken, guard.ErrWrongLockService, guard.ErrFailedOver,
	context.Canceled, context.DeadlineExceeded,
}

// Of returns the problem that err is; nil if err is nil.
//
// The order counts: an unknown outcome wraps what led to it, and a rejection may wrap the
// end of a context.
func Of(err error) *Problem {
	var grant *fence.InvalidGrantError
	travelled := rejectedTraveller(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, guard.ErrUnknownOutcome):
		if guard.SafeToRetry(err) {
			return UnknownOnce
		}
		return UnknownOutcome
	case errors.Is(err, guard.ErrTxEnded):
		return Internal
	case travelled != nil && errors.Is(travelled, guard.ErrStaleToken):
		return StaleGrant
	case travelled != nil:
		return RejectedGrant
	case errors.As(err, &grant):
		return InvalidGrant
	case errors.As(err, new(*SignatureError)):
		return UnsignedGrant
	case errors.Is(err, guard.ErrKeyReused):
		return KeyReused
	case errors.Is(err, guard.ErrInvalid):
		return Internal
	case errors.Is(err, guard.ErrClosed):
		return Stopping
	case guard.SafeToRetry(err), slices.ContainsFunc(unavailable, func(target error) bool { return errors.Is(err, target) }):
		return Unavailable
	}
	return Internal
}

// rejectedTraveller returns the rejection of a grant that travelled, which its sender has
// to replace; nil if err is none. One that was overtaken is still good.
func rejectedTraveller(err error) *guard.RejectedError {
	var rejected *guard.RejectedError
	if errors.As(err, &rejected) && rejected.Travelled && !errors.Is(rejected, guard.ErrOvertaken) {
		return rejected
	}
	return nil
}

// Superseded returns the rejection of a stale grant, if it is one of those that the client
// itself sent: then the answer may contain the tokens.
func Superseded(err error, sent []fence.Grant) (*guard.RejectedError, bool) {
	rejected := rejectedTraveller(err)
	if Of(err) != StaleGrant || !slices.Contains(sent, rejected.Grant) {
		return nil, false
	}
	return rejected, true
}
