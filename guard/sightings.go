package guard

import (
	"slices"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// maxSightings is how many fences are remembered at least, and half of the most: 4 MB if names have 40 bytes, and twice that
// if all are only read.
const maxSightings = 20_000

type sightings struct {
	mu     sync.Mutex
	recent map[string]sighting
	older  map[string]sighting
	doubts map[string][]doubt // few, so they need no bound
}

// sighting is what was seen of a resource. It lets the next claim notice lost writes.
type sighting struct {
	position    storage.Position // of the fence; zero if unknown
	superseder  *fence.Grant     // of this process's last grant; or nil
	unmoved     *storage.Claim   // of the fence, without a position: two reads without a lock in a row have found it at at
	uncontested int              // how many claims in a row found that nothing had moved the fence since
}

// keepAfter is how many such claims make the process keep the resource: they show that no other process uses it. Where
// each needs a lease, fewer pay.
const (
	keepAfter      = 8
	keepLeaseAfter = 2
)

func newSightings() *sightings {
	return &sightings{recent: map[string]sighting{}, doubts: map[string][]doubt{}}
}

func (m *sightings) of(resource string) sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookUp(resource)
}

func (m *sightings) lookUp(resource string) sighting {
	if p, ok := m.recent[resource]; ok {
		return p
	}
	return m.older[resource]
}

// noteLocked remembers what was learned under s. Once a call has returned that the database went back, the position is
// forgotten, so that later calls start from what is there. The caller holds mu.
func (m *sightings) noteLocked(s *grantState) {
	resource := s.claim.Grant.Resource
	p := m.lookUp(resource)
	before := p.position
	if s.claim.Seq >= p.position.Seq { // else another call has seen more
		p.position = s.claim.Position
	}
	r := s.rejected
	if r != nil && r.Reason == storage.ReasonWentBack && !s.unreported {
		p.position = storage.Position{}
	}
	switch {
	case !s.claim.Looked || s.claim.Position != before:
		p.unmoved = nil
	case p.unmoved == nil:
		claim := s.claim
		claim.Position = storage.Position{}
		p.unmoved = &claim
	}
	switch {
	case s.lastUser == thisProcess:
		p.uncontested++
	case s.lastUser == anotherProcess, s.claim.Looked && p.position != before:
		p.uncontested = 0
	}
	s.lastUser = unknownUser
	if s.claimed { // no transaction of a lower grant can commit any more
		m.dropDoubts(resource, func(d doubt) bool { return d.grant.Compare(s.claim.Grant) < 0 })
	}
	if s.lock != nil {
		p.superseder = nil
		if r != nil && (r.Reason == storage.ReasonStale || r.Reason == storage.ReasonTokensWentBack) {
			p.superseder = &r.Current
		}
	}
	m.recent[resource] = p
	if len(m.recent) == maxSightings {
		m.recent, m.older = map[string]sighting{}, m.recent
	}
}

func (m *sightings) note(states ...*grantState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range states {
		m.noteLocked(s)
	}
}

// inDoubt reports whether a COMMIT of this process may still arrive although g has the fence.
func (m *sightings) inDoubt(g fence.Grant) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.doubts[g.Resource], func(d doubt) bool { return d.grant.Compare(g) >= 0 })
}

type doubt struct {
	grant fence.Grant
	err   *UnknownOutcomeError
}

// addDoubt keeps a transaction in doubt: no other call begins under its grants, or reads without a lock, before it is
// settled. An earlier one stays: if the later one made its own claim, and took no effect, it ruled nothing out.
func (m *sightings) addDoubt(err *UnknownOutcomeError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range err.inDoubt.Claims {
		m.doubts[c.Grant.Resource] = append(m.doubts[c.Grant.Resource], doubt{c.Grant, err})
	}
}

func (m *sightings) doubtUnder(s *grantState) *UnknownOutcomeError {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.doubts[s.claim.Grant.Resource] {
		if d.grant == s.claim.Grant { // mutant: doubt-of-a-lease-is-not-inherited
			return d.err
		}
	}
	return nil
}

func (m *sightings) removeDoubt(err *UnknownOutcomeError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range err.inDoubt.Claims {
		m.dropDoubts(c.Grant.Resource, func(d doubt) bool { return d.err == err })
	}
}

func (m *sightings) dropDoubts(resource string, gone func(doubt) bool) {
	if left := slices.DeleteFunc(m.doubts[resource], gone); len(left) > 0 {
		m.doubts[resource] = left
	} else {
		delete(m.doubts, resource)
	}
}
