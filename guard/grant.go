package guard

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/internal/turns"
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
	unreported    bool                 // no call has returned the latest rejection as its error
	callers       bool                 // the grant is a caller's: other calls may be under way under it
	travelled     bool                 // the grant came from another process: see Guard.UnderGrant
	backoff       backoff              // after shared transactions of batches for the resource
	memory        *memory              // of the Guard
}

// Granted notes that the lock service has granted the lease that s is kept with.
func (s *grantState) Granted(lease fence.Lease) {
	s.claim.Grant = lease.Grant()
	s.claim.Position = s.memory.position(s.claim.Grant.Resource)
}

// Usable reports whether another call may begin under the grant.
func (s *grantState) Usable() bool { return !s.dead } // mutant: dead-grants-are-used

// GivenUp notes for the next acquisition what was learned under the grant.
func (s *grantState) GivenUp() {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen.note(s)
	if rejection := rejectionOf(s.rejected, s.claim.Grant); rejection != nil && (rejection.Reason == storage.ReasonStale || rejection.Reason == storage.ReasonTokensWentBack) {
		current := rejection.Current
		m.superseding[s.claim.Grant.Resource] = &current
	} else {
		delete(m.superseding, s.claim.Grant.Resource)
	}
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
	s.rejected, s.unreported = err, false
	s.dead = s.dead || reason != storage.ReasonOvertaken // mutant: rejected-grant-goes-on
}

// saidWentBack reports whether a call has returned that the database went back behind what was
// seen under the grant.
func (s *grantState) saidWentBack() bool {
	rejection := rejectionOf(s.rejected, s.claim.Grant)
	return rejection != nil && rejection.Reason == storage.ReasonWentBack && !s.unreported
}

// held is what a call has of its resources.
type held = turns.Held[*grantState]

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

// memory is what a Guard remembers of resources beyond the leases and the calls that taught it.
type memory struct {
	mu          sync.Mutex
	seen        seenFences
	superseding map[string]*fence.Grant         // by resource: the grant that superseded the last one that this process had
	doubts      map[string]*UnknownOutcomeError // by resource: left under grants of callers, see leaveDoubt
}

func newMemory() *memory {
	return &memory{
		seen:        seenFences{byResource: map[string]*list.Element{}},
		superseding: map[string]*fence.Grant{}, doubts: map[string]*UnknownOutcomeError{},
	}
}

// prepare returns the state of a grant that the lock service will be asked for.
func (m *memory) prepare(resource string) *grantState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &grantState{memory: m, claimedBefore: m.superseding[resource]}
}

// position returns where the fence of resource was last seen.
func (m *memory) position(resource string) storage.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen.at(resource)
}

// maxSeen bounds how many resources seenFences remembers: 3 MB, if their names have 40 bytes.
const maxSeen = 20_000

// seenFences are the positions at which this process has last seen the fences of the resources
// that it used last. They outlive the ownerships: the next claim of a resource tells the store
// where its fence was, so that the caller learns what the database has lost since, also if other
// processes have claimed the resource in between.
type seenFences struct {
	byResource map[string]*list.Element // of *seenFence
	inUse      list.List                // the one that was used longest ago first
}

type seenFence struct {
	resource string
	at       storage.Position
}

// at returns where the fence of resource was; the zero Position if that is not known.
func (s *seenFences) at(resource string) storage.Position {
	if e := s.byResource[resource]; e != nil {
		return e.Value.(*seenFence).at
	}
	return storage.Position{}
}

// note remembers what was learned of the fence of state's grant, or forgets all of it if a call
// has returned that the database went back: then later calls begin with what is there now.
func (s *seenFences) note(state *grantState) {
	resource, at := state.claim.Grant.Resource, state.claim.Position
	e := s.byResource[resource]
	switch {
	case state.saidWentBack():
		if e != nil {
			s.forget(e)
		}
	case at.Seq == 0:
	case e == nil:
		s.byResource[resource] = s.inUse.PushBack(&seenFence{resource, at})
		if len(s.byResource) > maxSeen {
			s.forget(s.inUse.Front())
		}
	case at.Seq >= e.Value.(*seenFence).at.Seq: // else another call under the same grant has seen more
		e.Value.(*seenFence).at = at
		s.inUse.MoveToBack(e)
	}
}

func (s *seenFences) forget(e *list.Element) {
	delete(s.byResource, e.Value.(*seenFence).resource)
	s.inUse.Remove(e)
}

// endCallersCall notes what a call under grants of the caller's has learned.
func (m *memory) endCallersCall(states grantStates) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range states {
		m.seen.note(s)
		if d := m.doubts[s.claim.Grant.Resource]; d != nil && s.claimed && d.under(s.claim.Grant.Resource).Grant.Compare(s.claim.Grant) < 0 {
			delete(m.doubts, s.claim.Grant.Resource) // no transaction of that grant can commit any more
		}
	}
}

// leaveDoubt keeps a transaction under callers' grants that is in doubt: no other call begins under
// one of these grants before it is settled (G6). Of several for one resource the last is kept:
// once it is settled, the fence has passed the positions of the others. Only calls that were at COMMIT
// when the database went away leave one, so they are few, and need no bound.
func (m *memory) leaveDoubt(d *UnknownOutcomeError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range d.inDoubt.Claims {
		if before := m.doubts[c.Grant.Resource]; before == nil || earlier(before.under(c.Grant.Resource), c) {
			m.doubts[c.Grant.Resource] = d
		}
	}
}

// doubtUnder returns what another call under the grant of s has left in doubt, or nil.
func (m *memory) doubtUnder(s *grantState) *UnknownOutcomeError {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.doubts[s.claim.Grant.Resource]
	if d == nil || d.under(s.claim.Grant.Resource).Grant != s.claim.Grant { // mutant: doubt-of-a-lease-is-not-inherited
		return nil
	}
	return d
}

// settled drops a transaction that is no longer in doubt.
func (m *memory) settled(d *UnknownOutcomeError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range d.inDoubt.Claims {
		if m.doubts[c.Grant.Resource] == d {
			delete(m.doubts, c.Grant.Resource)
		}
	}
}

// under returns the claim of resource that the transaction ran under.
func (e *UnknownOutcomeError) under(resource string) storage.Claim {
	i := slices.IndexFunc(e.inDoubt.Claims, func(c storage.Claim) bool { return c.Grant.Resource == resource })
	return e.inDoubt.Claims[i]
}

// earlier reports whether a is a claim of a lower grant than b, or of the same at a lower position.
func earlier(a, b storage.Claim) bool {
	return cmp.Or(a.Grant.Compare(b.Grant), cmp.Compare(a.Seq, b.Seq)) < 0
}
