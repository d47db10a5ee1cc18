package guard

import (
	"cmp"
	"slices"

	"github.com/fencekit/fencekit/storage"
)

// beginCallersCall counts a call under grants of the caller's, so that Close waits for it,
// and gives it where the fences were last seen.
func (k *keeper) beginCallersCall(states grantStates) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.pending++
	for _, s := range states {
		s.claim.Position = k.seen.at(s.claim.Grant.Resource)
	}
	return nil
}

// endCallersCall ends what beginCallersCall began.
func (k *keeper) endCallersCall(states grantStates) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range states {
		k.seen.note(s)
		if d := k.doubts[s.claim.Grant.Resource]; d != nil && s.claimed && d.under(s.claim.Grant.Resource).Grant.Compare(s.claim.Grant) < 0 {
			delete(k.doubts, s.claim.Grant.Resource) // no transaction of that grant can commit any more
		}
	}
	k.pending--
	k.finish()
}

// leaveDoubt keeps a transaction under callers' grants that is in doubt: no other call begins under
// one of these grants before it is settled (G6). Of several for one resource the last is kept:
// once it is settled, the fence has passed the positions of the others. Only calls that were at COMMIT
// when the database went away leave one, so they are few, and need no bound.
func (k *keeper) leaveDoubt(d *UnknownOutcomeError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range d.inDoubt.Claims {
		if before := k.doubts[c.Grant.Resource]; before == nil || earlier(before.under(c.Grant.Resource), c) {
			k.doubts[c.Grant.Resource] = d
		}
	}
}

// doubtUnder returns what another call under the grant of s has left in doubt, or nil.
func (k *keeper) doubtUnder(s *grantState) *UnknownOutcomeError {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.doubts[s.claim.Grant.Resource]
	if d == nil || d.under(s.claim.Grant.Resource).Grant != s.claim.Grant { // mutant: doubt-of-a-lease-is-not-inherited
		return nil
	}
	return d
}

// settled drops a transaction that is no longer in doubt.
func (k *keeper) settled(d *UnknownOutcomeError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range d.inDoubt.Claims {
		if k.doubts[c.Grant.Resource] == d {
			delete(k.doubts, c.Grant.Resource)
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
