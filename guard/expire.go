package guard

import (
	"context"
	"time"
)

// maxExpiryReleases bounds how many idle ownerships are released at a time. Thousands may
// expire together, and the lock service has to answer renewals meanwhile.
const maxExpiryReleases = 8

// instant is a moment, as the time since the keeper was made. 0 is no moment.
type instant time.Duration

func (k *keeper) now() instant { return 1 + instant(time.Since(k.began)) }

func (k *keeper) since(i instant) time.Duration { return time.Duration(k.now() - i) }

// idleOwnerships are the ownerships that expire unless they are used, in the order in which they
// became idle: the first is the next to expire, so one timer is enough. An ownership that a call
// has begun to use may still be in it. Guarded by keeper.mu.
type idleOwnerships struct {
	chain[*ownership]
	timer     *time.Timer // nil before its first use
	armed     bool        // the timer will call expire
	releasing int         // how many goroutines are in expire
}

// startExpiry makes o, which is idle from now on, expire after Config.KeepFor. The caller
// holds keeper.mu.
func (k *keeper) startExpiry(o *ownership) {
	k.idle.remove(o)
	o.idleSince = k.now()
	k.idle.append(o)
	k.armExpiry()
}

// armExpiry arms the timer for the first ownership, unless it is armed already, or as many
// ownerships are being released as may be at a time. The caller holds keeper.mu.
func (k *keeper) armExpiry() {
	idle := &k.idle
	if idle.armed || idle.first == nil || idle.releasing == maxExpiryReleases {
		return
	}
	idle.armed = true
	after := k.cfg.KeepFor - k.since(idle.first.idleSince)
	if idle.timer == nil {
		idle.timer = time.AfterFunc(after, k.expire)
	} else {
		idle.timer.Reset(after)
	}
}

// stopExpiry stops the timer. The keeper closes, and releases what is idle at once. The caller
// holds keeper.mu.
func (k *keeper) stopExpiry() {
	if k.idle.timer != nil {
		k.idle.timer.Stop()
	}
}

// expire releases what has been idle for Config.KeepFor, one ownership after another. While it
// releases one, the timer starts another expire for the next, up to maxExpiryReleases at a time.
// An ownership whose release has not begun can still be used.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.idle.armed = false
	k.idle.releasing++
	for o := k.takeExpired(); o != nil; o = k.takeExpired() {
		k.armExpiry()
		k.mu.Unlock()
		k.releaseAndPass(context.Background(), o.line)
		k.mu.Lock()
	}
	k.idle.releasing--
	k.armExpiry()
}

// takeExpired takes the turn at the next expired ownership that no call uses; nil if there is
// none. The caller holds keeper.mu.
func (k *keeper) takeExpired() *ownership {
	for o := k.idle.first; o != nil && k.since(o.idleSince) >= k.cfg.KeepFor; o = k.idle.first {
		k.idle.remove(o)
		if k.takeIdle(o) {
			return o
		}
	}
	return nil
}
