package guard

import "time"

// lingerTime is how long an ownership for which another process waits is kept for the next call,
// after a transaction that calls shared. They were all answered at once: under load their
// callers call again at once, and share the next one. Without it the resource would change
// hands after each, which takes longer: an acquisition, and a claim.
const lingerTime = 500 * time.Microsecond

// noteSharedEnd notes that the call that had the turn at l has ended. The caller holds keeper.mu.
func (k *keeper) noteSharedEnd(l *line) {
	if l.shared {
		l.shared, l.sharedEnd = false, k.now()
	}
}

// lingers returns for how long the ownership of l is kept though another process waits for it,
// if no call waits here; 0 if not. Config.MaxHold bounds it. The caller holds keeper.mu.
func (k *keeper) lingers(l *line) time.Duration {
	o := l.ownership
	if o == nil || l.sharedEnd == 0 || o.contended <= 0 || k.closed || o.dead || o.lease.Err() != nil {
		return 0
	}
	return max(0, min(lingerTime-k.since(l.sharedEnd), k.cfg.MaxHold-k.since(o.contended)))
}
