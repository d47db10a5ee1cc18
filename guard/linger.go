package guard

import "time"

// lingerTime is how long an ownership for which another process waits is kept for the next call,
// after a transaction that calls shared. They were all answered at once: under load their
// callers call again at once, and share the next one. Without it the resource would change
// hands after each, which takes longer: an acquisition, and a claim.
const lingerTime = 500 * time.Microsecond

// linger is what a line knows of transactions that its calls shared.
type linger struct {
	shared bool    // the transaction of the call that has the turn is such a one
	since  instant // when the last one ended
}

// noteSharedEnd notes that the call that had the turn at l has ended. The caller holds keeper.mu.
func (k *keeper) noteSharedEnd(l *line) {
	if l.linger.shared {
		l.linger = linger{since: k.now()}
	}
}

// lingers returns for how long the ownership of l is kept though another process waits for it,
// if no call waits here; 0 if not. Config.MaxHold bounds it. The caller holds keeper.mu.
func (k *keeper) lingers(l *line) time.Duration {
	o := l.ownership
	if o == nil || l.linger.since == 0 || o.contended <= 0 || k.closed || o.dead || o.lease.Err() != nil {
		return 0
	}
	return max(0, min(lingerTime-k.since(l.linger.since), k.cfg.MaxHold-k.since(o.contended)))
}
