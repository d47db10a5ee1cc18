package guard

import (
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// grantState is what this process knows about a grant and its fence. One goroutine at a
// time uses it.
type grantState struct {
	claim         storage.Claim        // its Grant is the grant, and never changes
	claimedBefore *fence.Grant         // known to have claimed before the lock service was asked for the grant; or nil
	unresolved    *UnknownOutcomeError // a transaction whose outcome could not be learned
	rejected      error                // the latest rejection
	claimed       bool                 // claim has the fence's position, as far as is known
	inHold        bool                 // what a Hold has read under claim has to stay true
	dead          bool                 // no further call may begin under the grant
	untold        bool                 // no call has returned the latest rejection as its error
	callers       bool                 // the grant is a caller's: other calls may be under way under it
	travelled     bool                 // the grant came from another process: see Guard.UnderGrant
}

// applied moves the claim on after a transaction that was in doubt took effect.
func (s *grantState) applied(d storage.InDoubt) {
	i := slices.IndexFunc(d.Claims, func(c storage.Claim) bool { return c.Grant == s.claim.Grant })
	c := d.Claims[i]
	c.Position = storage.Position{Seq: c.Seq + 1, Tx: d.Tx}
	s.moved(c)
}

// moved notes where the fence is. It doesn't write the grant, which other goroutines read.
func (s *grantState) moved(c storage.Claim) {
	s.claim.Resource, s.claim.Position, s.claimed = c.Resource, c.Position, true
}

// reject notes a rejection of the grant.
func (s *grantState) reject(reason storage.Reason, err error) {
	s.claimed = false
	s.rejected, s.untold = err, false
	s.dead = s.dead || reason != storage.ReasonOvertaken // mutant: rejected-grant-goes-on
}

// saidWentBack reports whether a call has returned that the database went back behind what was
// seen under the grant.
func (s *grantState) saidWentBack() bool {
	rejection := rejectionOf(s.rejected, s.claim.Grant)
	return rejection != nil && rejection.Reason == storage.ReasonWentBack && !s.untold
}

// grantStates are those of the grants that a transaction runs under.
type grantStates []*grantState

func (states grantStates) grants() []fence.Grant {
	grants := make([]fence.Grant, len(states))
	for i, s := range states {
		grants[i] = s.claim.Grant
	}
	return grants
}

func (states grantStates) claims() []storage.Claim {
	claims := make([]storage.Claim, len(states))
	for i, s := range states {
		claims[i] = s.claim
	}
	return claims
}

// resources returns the names of the grants' resources.
func (states grantStates) resources() []string {
	resources := make([]string, len(states))
	for i, s := range states {
		resources[i] = s.claim.Grant.Resource
	}
	return resources
}

// setInHold says whether what a transaction reads has to stay true after its end.
func (states grantStates) setInHold(inHold bool) {
	for _, s := range states {
		s.inHold = inHold
	}
}

// allClaimed reports whether each claim has its fence's position.
func (states grantStates) allClaimed() bool {
	return !slices.ContainsFunc(states, func(s *grantState) bool { return !s.claimed })
}

// setClaimed says whether the claims have their fences' positions.
func (states grantStates) setClaimed(claimed bool) {
	for _, s := range states {
		s.claimed = claimed
	}
}

// rejectedBy reports whether err rejects one of the grants.
func (states grantStates) rejectedBy(err error) bool {
	return rejectionOf(err, states.grants()...) != nil
}
