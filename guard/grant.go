package guard

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// grantState is what this process knows about a grant, its lease and its fence. One goroutine at a time uses
// it: the call that has the turn, or that has made it for a grant of its caller's.
type grantState struct {
	claim         storage.Claim        // its Grant is the grant, and never changes
	claimedBefore fence.Grant          // known to have claimed before the lock service was asked for the grant; or zero
	unresolved    *UnknownOutcomeError // a transaction whose outcome could not be learned
	rejected      error                // the latest rejection
	claimed       bool                 // claim has the fence's position, as far as is known
	inHold        bool                 // what a Hold has read under claim has to stay true
	dead          bool                 // no further call may begin under the grant
	unreported    bool                 // no call has returned the latest rejection as its error
	backoff       backoff              // after shared transactions of batches for the resource

	lease   fence.Lease                // nil if the grant came from another process: see Guard.UnderGrant
	line    *line                      // that keeps the lease; nil if the grant is a caller's, and other calls may be under way under it
	atOnce  bool                       // the call that has the turn doesn't want the lease kept
	running atomic.Pointer[runContext] // of the function that runs under the lease; or nil

	// Guarded by lines.mu.
	contended time.Time // when another process began to wait; zero if none does
	overrun   bool      // released while a function still runs: no other call may begin
	idleSince time.Time // when the last call ended
	idle      *list.Element
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

// rejection returns the latest rejection, or nil.
func (s *grantState) rejection() *RejectedError { return rejectionOf(s.rejected, s.claim.Grant) }

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

// allClaimed reports whether each claim has its fence's position.
func (states grantStates) allClaimed() bool {
	return !slices.ContainsFunc(states, func(s *grantState) bool { return !s.claimed })
}

// rejectedBy reports whether err rejects one of the grants.
func (states grantStates) rejectedBy(err error) bool {
	return rejectionOf(err, states.grants()...) != nil
}

// maxSeen is of how many resources, those that it used last, a Guard remembers the fences at least; and of
// up to twice as many: 4 MB, if their names have 40 bytes.
const maxSeen = 20_000

// memory is what a Guard remembers of resources beyond the leases and the calls that taught it. The positions
// at which it has last seen the fences outlive the ownerships: the next claim of a resource tells the store
// where its fence was, so that the caller learns what the database has lost since, also if other
// processes have claimed the resource in between.
type memory struct {
	mu          sync.Mutex
	seen        map[string]storage.Position     // by resource: where the fence was
	seenBefore  map[string]storage.Position     // what seen was before it was full
	superseding map[string]fence.Grant          // by resource: the grant that superseded the last one that this process had
	doubts      map[string]*UnknownOutcomeError // by resource: left under grants of callers, see leaveDoubt
}

func newMemory() *memory {
	return &memory{seen: map[string]storage.Position{}, superseding: map[string]fence.Grant{}, doubts: map[string]*UnknownOutcomeError{}}
}

// superseder returns the grant that superseded the last one that this process had of resource; zero if none did.
func (m *memory) superseder(resource string) fence.Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.superseding[resource]
}

// position returns where the fence of resource was last seen; the zero Position if that is not known.
func (m *memory) position(resource string) storage.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastSeen(resource)
}

// lastSeen is position. The caller holds mu.
func (m *memory) lastSeen(resource string) storage.Position {
	if at, ok := m.seen[resource]; ok {
		return at
	}
	return m.seenBefore[resource]
}

// note remembers what was learned of the fence of s's grant, or forgets all of it if a call
// has returned that the database went back: then later calls begin with what is there now. The caller holds mu.
func (m *memory) note(s *grantState) {
	resource, at := s.claim.Grant.Resource, s.claim.Position
	if rejection := s.rejection(); rejection != nil && rejection.Reason == storage.ReasonWentBack && !s.unreported {
		delete(m.seen, resource)
		delete(m.seenBefore, resource)
		return
	}
	if at.Seq == 0 || at.Seq < m.lastSeen(resource).Seq { // another call under the same grant has seen more
		return
	}
	m.seen[resource] = at
	if len(m.seen) == maxSeen {
		m.seen, m.seenBefore = map[string]storage.Position{}, m.seen
	}
}

// givenUp notes what was learned under a grant whose lease is given up, for the next acquisition.
func (m *memory) givenUp(s *grantState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(s)
	delete(m.superseding, s.claim.Grant.Resource)
	if rejection := s.rejection(); rejection != nil && (rejection.Reason == storage.ReasonStale || rejection.Reason == storage.ReasonTokensWentBack) {
		m.superseding[s.claim.Grant.Resource] = rejection.Current
	}
}

// endCallersCall notes what a call under grants of the caller's has learned.
func (m *memory) endCallersCall(states grantStates) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range states {
		m.note(s)
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
