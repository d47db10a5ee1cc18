package guard

import (
	"context"
	"time"
)

// maxExpiryReleases bounds how many idle ownerships are released at a time. Thousands may
// expire together, and the lock service has to answer renewals meanwhile.
const maxExpiryReleases = 8

// instant is a moment, as the time since the keeper was made. It is never 0, which stands for
// none.
type instant time.Duration

func (k *keeper) now() instant { return 1 + instant(time.Since(k.began)) }

func (k *keeper) since(i instant) time.Duration { return time.Duration(k.now() - i) }

// idleOwnerships are those that expire unless they are used: in the order in which they
// became idle, so that the first is the next to expire, and one timer is enough. One that a
// call uses may still be in it. Guarded by keeper.mu.
type idleOwnerships struct {
	chain[*ownership]
	timer     *time.Timer // nil before it is first set
	set       bool        // the timer is
	releasing int         // how many goroutines release what has expired
}

// startExpiry makes o, which is idle from now on, expire after Config.KeepFor. The caller
// holds keeper.mu.
func (k *keeper) startExpiry(o *ownership) {
	k.idle.remove(o)
	o.idleSince = k.now()
	k.idle.append(o)
	k.setExpiry()
}

// setExpiry makes sure that the timer is set for the first ownership, if more may be
// released. The caller holds keeper.mu.
func (k *keeper) setExpiry() {
	i := &k.idle
	if i.set || i.first == nil || i.releasing == maxExpiryReleases {
		return
	}
	i.set = true
	after := k.cfg.KeepFor - k.since(i.first.idleSince)
	if i.timer == nil {
		i.timer = time.AfterFunc(after, k.expire)
	} else {
		i.timer.Reset(after)
	}
}

// stopExpiry stops the timer when the keeper closes: what is idle is released anyway. The
// caller holds keeper.mu.
func (k *keeper) stopExpiry() {
	if k.idle.timer != nil {
		k.idle.timer.Stop()
	}
}

// expire releases what has been idle for Config.KeepFor, one after another. While it
// releases one, the timer begins another expire for the next, up to maxExpiryReleases.
// What waits for its release can still be used.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.idle.set = false
	k.idle.releasing++
	for o := k.takeExpired(); o != nil; o = k.takeExpired() {
		k.setExpiry()
		k.mu.Unlock()
		k.releaseAndPass(context.Background(), o.line)
		k.mu.Lock()
	}
	k.idle.releasing--
	k.setExpiry()
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
