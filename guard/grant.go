package guard

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// grantState is what this process knows about a grant, its lease and its fence. One goroutine at a time uses it:
// the call that has the localLock, or that made it for a grant of its caller's.
type grantState struct {
	claim      storage.Claim        // the Grant never changes
	superseder *fence.Grant         // had claimed before this grant was asked for; or nil
	unresolved *UnknownOutcomeError // transaction in doubt
	rejected   *RejectedError

	lease   fence.Lease // nil if the grant came from another process
	lock    *localLock  // that keeps the lease; nil for a grant of the caller's
	running atomic.Pointer[runContext]

	claimed             bool // claim has the fence's position
	dead                bool // no further call may begin
	unreported          bool
	raised              bool // later grants are above the fence that rejected this one
	releaseBeforeReturn bool
	claimsInTx          bool // the transaction makes the claim
	releaseInBackground bool // released after the call, which doesn't wait for that
	lastUser            user // who was found to have used the resource last, if that is yet to be noted

	// Guarded by localLocks.mu.
	overrun     bool          // released while a function still runs: no other call may begin
	contendedAt time.Duration // when another process began to wait; 0 if none does
	idleSince   time.Duration
	links[*grantState]
}

func (s *grantState) noteCommitted(d storage.InDoubt) {
	i := slices.IndexFunc(d.Claims, func(c storage.Claim) bool { return c.Grant == s.claim.Grant })
	c := d.Claims[i]
	c.Position = storage.Position{Seq: c.Seq + 1, Tx: d.Tx}
	s.setPosition(c)
}

// setPosition leaves the Grant alone, which other goroutines read.
func (s *grantState) setPosition(c storage.Claim) {
	s.claim.Resource, s.claim.Position, s.claimed = c.Resource, c.Position, true
}

type user uint8

const (
	unknownUser user = iota
	thisProcess
	anotherProcess
)

// noteLastUser notes who had moved the fence before c was claimed.
func (s *grantState) noteLastUser(c storage.Claim) {
	switch {
	case s.lock == nil || c.Position == s.claim.Position: // the caller's grant, or claimed again
	case s.claim.Seq > 0 && c.Seq == s.claim.Seq+1:
		s.lastUser = thisProcess
	default:
		s.lastUser = anotherProcess
	}
}

func (s *grantState) overtakenError() error {
	if s.rejected != nil {
		return s.rejected
	}
	return ErrOvertaken
}

type grantStates []*grantState

func (states grantStates) grants() []fence.Grant {
	grants := make([]fence.Grant, len(states))
	for i, s := range states {
		grants[i] = s.claim.Grant
		if s.claim.Looked {
			grants[i] = fence.Grant{Resource: s.claim.Grant.Resource} // the other is somebody else's
		}
	}
	return grants
}

// claims appends to buffer.
func (states grantStates) claims(buffer []storage.Claim) []storage.Claim {
	for _, s := range states {
		buffer = append(buffer, s.claim)
	}
	return buffer
}

func (states grantStates) allClaimed() bool {
	return !slices.ContainsFunc(states, func(s *grantState) bool { return !s.claimed })
}

// claimableInTx reports whether none has been claimed, or has left anything in doubt.
func (states grantStates) claimableInTx() bool {
	return !slices.ContainsFunc(states, func(s *grantState) bool { return s.claimed || s.unresolved != nil }) // mutant: own-claim-beside-a-doubt
}

func (states grantStates) rejectedBy(err error) bool {
	return rejectionOf(err, states.grants()...) != nil
}
