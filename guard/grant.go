package guard

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// grantState is what this process knows about a grant, its lease and its fence. One goroutine at a time uses it:
// the call that has the turn, or that made it for a grant of its caller's.
type grantState struct {
	claim      storage.Claim        // the Grant never changes
	superseder *fence.Grant         // had claimed before this grant was asked for; or nil
	unresolved *UnknownOutcomeError // transaction in doubt
	rejected   *RejectedError

	lease   fence.Lease // nil if the grant came from another process
	line    *line       // that keeps the lease; nil for a grant of the caller's
	running atomic.Pointer[runContext]

	claimed    bool // claim has the fence's position
	dead       bool // no further call may begin
	unreported bool
	raised     bool // later grants are above the fence that rejected this one
	atOnce     bool
	own        bool // the transaction makes the claim
	brief      bool // released after the call, which doesn't wait for that
	last       user // who was found to have used the resource last, if that is yet to be noted

	// Guarded by lines.mu.
	overrun   bool          // released while a function still runs: no other call may begin
	contended time.Duration // when another process began to wait; 0 if none does
	idleSince time.Duration
	links[*grantState]
}

func (s *grantState) applied(d storage.InDoubt) {
	i := slices.IndexFunc(d.Claims, func(c storage.Claim) bool { return c.Grant == s.claim.Grant })
	c := d.Claims[i]
	c.Position = storage.Position{Seq: c.Seq + 1, Tx: d.Tx}
	s.moved(c)
}

// moved leaves the Grant alone, which other goroutines read.
func (s *grantState) moved(c storage.Claim) {
	s.claim.Resource, s.claim.Position, s.claimed = c.Resource, c.Position, true
}

type user uint8

const (
	unknownUser user = iota
	thisProcess
	anotherProcess
)

// found notes who had moved the fence before c was claimed.
func (s *grantState) found(c storage.Claim) {
	switch {
	case s.line == nil || c.Position == s.claim.Position: // the caller's grant, or claimed again
	case s.claim.Seq > 0 && c.Seq == s.claim.Seq+1:
		s.last = thisProcess
	default:
		s.last = anotherProcess
	}
}

func (s *grantState) overtaken() error {
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

// claims appends to memory.
func (states grantStates) claims(memory []storage.Claim) []storage.Claim {
	for _, s := range states {
		memory = append(memory, s.claim)
	}
	return memory
}

func (states grantStates) allClaimed() bool {
	return !slices.ContainsFunc(states, func(s *grantState) bool { return !s.claimed })
}

// fresh reports whether none has been claimed, or has left anything in doubt.
func (states grantStates) fresh() bool {
	return !slices.ContainsFunc(states, func(s *grantState) bool { return s.claimed || s.unresolved != nil }) // mutant: own-claim-beside-a-doubt
}

func (states grantStates) rejectedBy(err error) bool {
	return rejectionOf(err, states.grants()...) != nil
}

// maxSeen is how many fences are remembered at least, and half of the most: 4 MB if names have 40 bytes, and twice that
// if all are only read.
const maxSeen = 20_000

type memory struct {
	mu     sync.Mutex
	seen   map[string]past
	before map[string]past
	doubts map[string][]doubt // few, so they need no bound
}

// past is what was seen of a resource. It lets the next claim notice lost writes.
type past struct {
	at         storage.Position // of the fence; zero if unknown
	superseder *fence.Grant     // of this process's last grant; or nil
	still      *storage.Claim   // of the fence, without a position: two reads without a lock in a row have found it at at
	alone      int              // how many claims in a row found that nothing had moved the fence since
}

// keepAfter is how many such claims make the process keep the resource: they show that no other process uses it. Where
// each needs a lease, fewer pay.
const (
	keepAfter      = 8
	keepLeaseAfter = 2
)

func newMemory() *memory {
	return &memory{seen: map[string]past{}, doubts: map[string][]doubt{}}
}

func (m *memory) of(resource string) past {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookUp(resource)
}

func (m *memory) lookUp(resource string) past {
	if p, ok := m.seen[resource]; ok {
		return p
	}
	return m.before[resource]
}

// note remembers what was learned under s. Once a call has returned that the database went back, the position is
// forgotten, so that later calls start from what is there. The caller holds mu.
func (m *memory) note(s *grantState) {
	resource := s.claim.Grant.Resource
	p := m.lookUp(resource)
	before := p.at
	if s.claim.Seq >= p.at.Seq { // else another call has seen more
		p.at = s.claim.Position
	}
	r := s.rejected
	if r != nil && r.Reason == storage.ReasonWentBack && !s.unreported {
		p.at = storage.Position{}
	}
	switch {
	case !s.claim.Looked || s.claim.Position != before:
		p.still = nil
	case p.still == nil:
		claim := s.claim
		claim.Position = storage.Position{}
		p.still = &claim
	}
	switch {
	case s.last == thisProcess:
		p.alone++
	case s.last == anotherProcess, s.claim.Looked && p.at != before:
		p.alone = 0
	}
	s.last = unknownUser
	if s.claimed { // no transaction of a lower grant can commit any more
		m.dropDoubts(resource, func(d doubt) bool { return d.grant.Compare(s.claim.Grant) < 0 })
	}
	if s.line != nil {
		p.superseder = nil
		if r != nil && (r.Reason == storage.ReasonStale || r.Reason == storage.ReasonTokensWentBack) {
			p.superseder = &r.Current
		}
	}
	m.seen[resource] = p
	if len(m.seen) == maxSeen {
		m.seen, m.before = map[string]past{}, m.seen
	}
}

func (m *memory) givenUp(states ...*grantState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range states {
		m.note(s)
	}
}

// inDoubt reports whether a COMMIT of this process may still arrive although g has the fence.
func (m *memory) inDoubt(g fence.Grant) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.doubts[g.Resource], func(d doubt) bool { return d.grant.Compare(g) >= 0 })
}

type doubt struct {
	grant fence.Grant
	err   *UnknownOutcomeError
}

// leaveDoubt keeps a transaction in doubt: no other call begins under its grants, or reads without a lock, before it is
// settled (G6). An earlier one stays: if the later one made its own claim, and took no effect, it ruled nothing out.
func (m *memory) leaveDoubt(err *UnknownOutcomeError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range err.inDoubt.Claims {
		m.doubts[c.Grant.Resource] = append(m.doubts[c.Grant.Resource], doubt{c.Grant, err})
	}
}

func (m *memory) doubtUnder(s *grantState) *UnknownOutcomeError {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.doubts[s.claim.Grant.Resource] {
		if d.grant == s.claim.Grant { // mutant: doubt-of-a-lease-is-not-inherited
			return d.err
		}
	}
	return nil
}

func (m *memory) settled(err *UnknownOutcomeError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range err.inDoubt.Claims {
		m.dropDoubts(c.Grant.Resource, func(d doubt) bool { return d.err == err })
	}
}

func (m *memory) dropDoubts(resource string, gone func(doubt) bool) {
	if left := slices.DeleteFunc(m.doubts[resource], gone); len(left) > 0 {
		m.doubts[resource] = left
	} else {
		delete(m.doubts, resource)
	}
}
