package guard

import (
	"context"
	"time"
)

// maxExpiryReleases bounds how many idle ownerships are released at a time. Thousands may
// expire together, and the lock service has to answer renewals meanwhile.
const maxExpiryReleases = 8

// expiredOwnership is an ownership that has been idle for Config.KeepFor, and its line.
type expiredOwnership struct {
	line      *line
	ownership *ownership
}

// startExpiry makes the ownership of l, which is idle from now on, expire after
// Config.KeepFor. The caller has locked keeper.mu.
func (k *keeper) startExpiry(l *line) {
	o := l.ownership
	o.idleSince = time.Now()
	if o.expiry == nil {
		o.expiry = time.AfterFunc(k.cfg.KeepFor, func() { k.expire(expiredOwnership{l, o}) })
	} else {
		o.expiry.Reset(k.cfg.KeepFor)
	}
}

// expire queues an ownership for release. Until it is released it can be used.
func (k *keeper) expire(i expiredOwnership) {
	k.mu.Lock()
	k.expired = append(k.expired, i)
	more := k.expiring < maxExpiryReleases
	if more {
		k.expiring++
	}
	k.mu.Unlock()
	for more {
		more = k.releaseExpired()
	}
}

// releaseExpired releases the next expired ownership, unless it is in use or was used
// since. It reports false if the queue is empty.
func (k *keeper) releaseExpired() bool {
	k.mu.Lock()
	if len(k.expired) == 0 {
		k.expiring--
		k.mu.Unlock()
		return false
	}
	next := k.expired[0]
	k.expired = k.expired[1:]
	taken := time.Since(next.ownership.idleSince) >= k.cfg.KeepFor && k.takeIdle(next.line, next.ownership)
	k.mu.Unlock()
	if taken {
		k.releaseAndPass(context.Background(), next.line)
	}
	return true
}
