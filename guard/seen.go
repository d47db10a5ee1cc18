package guard

import "github.com/fencekit/fencekit/storage"

// maxSeen bounds how many resources seenFences remembers: 3 MB, if their names have 40 bytes.
const maxSeen = 20_000

// seenFences are the positions at which this process has last seen the fences of the resources
// that it used last. They outlive the ownerships: the next claim of a resource tells the store
// where its fence was, so that the caller learns what the database has lost since, also if other
// processes have claimed the resource in between (N6). Guarded by keeper.mu.
type seenFences struct {
	byResource map[string]*seenFence
	inUse      chain[*seenFence] // the one that was used longest ago first
}

type seenFence struct {
	resource string
	at       storage.Position
	place[*seenFence]
}

func (f *seenFence) inChain() *place[*seenFence] { return &f.place }

// at returns where the fence of resource was; the zero Position if that is not known.
func (s *seenFences) at(resource string) storage.Position {
	if f := s.byResource[resource]; f != nil {
		return f.at
	}
	return storage.Position{}
}

// note remembers what was learned of the fence of state's grant, or forgets all of it if a call
// has returned that the database went back: then later calls begin with what is there now.
func (s *seenFences) note(state *grantState) {
	resource, at := state.claim.Grant.Resource, state.claim.Position
	f := s.byResource[resource]
	if state.saidWentBack() {
		if f != nil {
			s.forget(f)
		}
		return
	}
	switch {
	case at.Seq == 0:
		return
	case f == nil:
		f = &seenFence{resource: resource}
		s.byResource[resource] = f
	case at.Seq < f.at.Seq: // another call under the same grant has seen more
		return
	}
	f.at = at
	s.inUse.remove(f)
	s.inUse.append(f)
	if len(s.byResource) > maxSeen {
		s.forget(s.inUse.first)
	}
}

func (s *seenFences) forget(f *seenFence) {
	delete(s.byResource, f.resource)
	s.inUse.remove(f)
}
