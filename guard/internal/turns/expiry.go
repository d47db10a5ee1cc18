package turns

import (
	"context"
	"time"
)

// maxExpiryReleases bounds how many idle leases are released at a time. Thousands may expire together, and
// the lock service has to answer renewals meanwhile.
const maxExpiryReleases = 8

// instant is a moment, as the time since Turns was made. 0 is no moment.
type instant time.Duration

func (t *Turns[V]) now() instant { return 1 + instant(time.Since(t.began)) }

func (t *Turns[V]) since(i instant) time.Duration { return time.Duration(t.now() - i) }

// idleLeases are the leases that expire unless they are used, in the order in which they became idle: the
// first is the next to expire, so one timer is enough. A lease that a call has begun to use may still be
// in it. Guarded by Turns.mu.
type idleLeases[V Value] struct {
	chain[*kept[V]]
	timer     *time.Timer // nil before its first use
	armed     bool        // the timer will call Expire
	releasing int         // how many goroutines are in Expire
}

// startExpiry makes o, which is idle from now on, expire after KeepFor. The caller holds mu.
func (t *Turns[V]) startExpiry(o *kept[V]) {
	t.idle.remove(o)
	o.idleSince = t.now()
	t.idle.append(o)
	t.armExpiry()
}

// armExpiry arms the timer for the first lease, unless it is armed already, or as many leases are being
// released as may be at a time. The caller holds mu.
func (t *Turns[V]) armExpiry() {
	idle := &t.idle
	if idle.armed || idle.first == nil || idle.releasing == maxExpiryReleases {
		return
	}
	idle.armed = true
	after := t.KeepFor - t.since(idle.first.idleSince)
	if idle.timer == nil {
		idle.timer = time.AfterFunc(after, t.Expire)
	} else {
		idle.timer.Reset(after)
	}
}

// stopExpiry stops the timer: Close releases what is idle at once. The caller holds mu.
func (t *Turns[V]) stopExpiry() {
	if t.idle.timer != nil {
		t.idle.timer.Stop()
	}
}

// Expire is called by the timer. It releases what has been idle for KeepFor, one lease after another. While
// it releases one, the timer starts another Expire for the next, up to maxExpiryReleases at a time. A
// lease whose release has not begun can still be used.
func (t *Turns[V]) Expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle.armed = false
	t.idle.releasing++
	for o := t.takeExpired(); o != nil; o = t.takeExpired() {
		t.armExpiry()
		t.mu.Unlock()
		t.releaseAndPass(context.Background(), o.line)
		t.mu.Lock()
	}
	t.idle.releasing--
	t.armExpiry()
}

// takeExpired takes the turn at the next expired lease that no call uses; nil if there is none. The caller
// holds mu.
func (t *Turns[V]) takeExpired() *kept[V] {
	for o := t.idle.first; o != nil && t.since(o.idleSince) >= t.KeepFor; o = t.idle.first {
		t.idle.remove(o)
		if t.takeIdle(o) {
			return o
		}
	}
	return nil
}
