package guard

import (
	"context"

	"github.com/fencekit/fencekit/fence"
)

// beginCallersCall counts a call under grants of the caller's, so that Close waits for it,
// and gives it where the fences were last seen, and what earlier calls under the same leases left
// in doubt (G6). leases are those of states, or none.
func (k *keeper) beginCallersCall(ctx context.Context, states grantStates, leases []fence.Lease) error {
	if err := endError(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.pending++
	for _, s := range states {
		s.claim.Position = k.seen.at(s.claim.Grant.Resource)
	}
	for i := range leases {
		states[i].unresolved = k.doubts[states[i].claim.Grant]
	}
	return nil
}

// endCallersCall ends what beginCallersCall began. inherited is what states had in doubt
// then. What is in doubt now is kept for later calls until the lease ends.
func (k *keeper) endCallersCall(states grantStates, leases []fence.Lease, inherited []*UnknownOutcomeError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range states {
		k.seen.note(s)
	}
	for i, lease := range leases {
		s := states[i]
		switch {
		case s.unresolved != nil && s.unresolved != inherited[i]:
			k.doubts[s.claim.Grant] = s.unresolved
			context.AfterFunc(lease.Context(), func() { k.forget(s.claim.Grant) })
		case s.unresolved == nil && k.doubts[s.claim.Grant] == inherited[i]:
			delete(k.doubts, s.claim.Grant)
		}
	}
	k.pending--
	k.finish()
}

// forget drops what is in doubt under grant, whose lease has ended.
func (k *keeper) forget(grant fence.Grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.doubts, grant)
}
