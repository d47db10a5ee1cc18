package postgres_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// link is the data of a resource: each write increments the count and extends the digest by
// the data that it has read. So a write based on anything but the latest data is detected.
type link struct {
	Count  int64
	Digest string
}

// world is the expected content of the database: the committed writes, in their order.
type world struct {
	chains  map[string]link
	claimed map[string]fence.Grant // the last that was
	applied map[storage.TxID]bool
	kept    map[string]string // by resource and key
	numbers map[int64]string  // the resources that have them
}

func newWorld() world {
	return world{map[string]link{}, map[string]fence.Grant{}, map[storage.TxID]bool{}, map[string]string{}, map[int64]string{}}
}

func (w world) clone() world {
	return world{maps.Clone(w.chains), maps.Clone(w.claimed), maps.Clone(w.applied), maps.Clone(w.kept), maps.Clone(w.numbers)}
}

// next is the link of resource that a transaction writes which has read these links.
func next(rests map[string]link, id storage.TxID, resource string) link {
	var text strings.Builder
	for _, r := range slices.Sorted(maps.Keys(rests)) {
		text.WriteString(rests[r].Digest)
	}
	fmt.Fprintf(&text, "%d %s", id, resource)
	return link{rests[resource].Count + 1, fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))[:16]}
}

// claimHasCommitted requires that a claim raised the fence, or was where it stood.
func (s *schedule) claimHasCommitted(c storage.Claim) {
	before := s.world.claimed[c.Grant.Resource]
	order := c.Grant.Compare(before)
	require.GreaterOrEqual(s, order, 0, "G3: %v was claimed after %v", c.Grant, before)
	if order == 0 {
		require.Equal(s, before.Holder, c.Grant.Holder, "G2: one token of two holders was claimed: %v", c.Grant)
	}
	s.world.claimed[c.Grant.Resource] = c.Grant
	s.world.numbers[c.Resource] = c.Grant.Resource
	s.seen["claimed"]++
}

// hasCommitted requires that the transaction was allowed to commit, and applies its writes
// to the world.
func (s *schedule) hasCommitted(r *run) {
	s.Logf("%v has committed: it rests on %v and writes %v", r, r.rests, r.writes)
	require.False(s, s.denied[r.id], "G4: %v was said not to have taken effect", r)
	for _, c := range r.claims {
		name := c.Grant.Resource
		require.Equal(s, s.world.claimed[name], c.Grant, "G3: %v committed under a grant that isn't the last", r)
		if rest, ok := r.rests[name]; ok {
			require.Equal(s, s.world.chains[name], rest, "G2, G6: %v rests on other data of %s than there was at its commit", r, name)
		}
		if r.key != nil {
			_, again := s.world.kept[name+r.key.Key]
			require.False(s, again, "G4: %v took effect under a key that another one has kept", r)
			s.world.kept[name+r.key.Key] = string(r.kept)
			s.seen["key kept"]++
		}
	}
	maps.Copy(s.world.chains, r.writes)
	s.world.applied[r.id] = true
	s.seen["committed"]++
	if len(r.claims) > 1 {
		s.seen["several resources"]++
	}
	if len(s.calls) == 0 { // else one that has committed may not be in the world yet
		s.check()
	}
}

// answered requires that what was found under a key is what was kept, and the answer one of the last
// grant's.
func (s *schedule) answered(r *run, result string) {
	if len(s.calls) > 0 {
		return // one that has committed may not be in the world yet
	}
	s.seen["key found, nothing under way"]++
	for _, c := range r.claims {
		name := c.Grant.Resource
		require.Equal(s, s.world.claimed[name], c.Grant, "%v was answered under a grant that isn't the last", r)
		require.Equal(s, s.world.kept[name+r.key.Key], result, "G4: %v was given an answer that isn't there", r)
	}
}

// check requires that the data equals the committed writes.
func (s *schedule) check() {
	require.Equal(s, s.world.chains, s.db.chains(s), "the data isn't what committed")
	require.Equal(s, s.world.kept, s.db.kept(s), "the keys aren't those of what committed")
}

// superseded reports whether a grant later than one of claims was claimed. A number
// that was lost with a database that went back may be another resource's by now.
func (s *schedule) superseded(claims []storage.Claim) bool {
	return slices.ContainsFunc(claims, func(c storage.Claim) bool {
		return s.world.claimed[s.world.numbers[c.Resource]].Compare(c.Grant) > 0
	})
}
