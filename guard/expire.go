package guard

import (
	"context"
	"time"
)

// maxExpiryReleases is how many idle owned are released at a time. Thousands may expire
// together, and the lock service has renewals to answer.
const maxExpiryReleases = 8

// expiredOwnership is a ownership that has been idle for long enough, and its line.
type expiredOwnership struct {
	line      *line
	ownership *ownership
}

// startExpiry starts the time after which an idle ownership expires. keeper.mu is held.
func (k *keeper) startExpiry(l *line) {
	t := l.ownership
	t.idleSince = time.Now()
	if t.expiry == nil {
		t.expiry = time.AfterFunc(k.cfg.KeepFor, func() { k.expire(expiredOwnership{l, t}) })
	} else {
		t.expiry.Reset(k.cfg.KeepFor)
	}
}

// expire queues a ownership for release. Until then it can be used.
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

// releaseExpired releases the next ownership that has expired, unless it was used
// meanwhile or is in use. It reports false if there is none.
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
