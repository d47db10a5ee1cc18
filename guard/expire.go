package guard

import (
	"context"
	"time"
)

// expirers is how many idle tenures are released at a time. Thousands may expire
// together, and the lock service has renewals to answer.
const expirers = 8

// idler is a tenure that has been idle for long enough, and its line.
type idler struct {
	line   *line
	tenure *tenure
}

// idle starts the time after which an idle tenure expires. keeper.mu is held.
func (k *keeper) idle(l *line) {
	t := l.tenure
	t.idleSince = time.Now()
	if t.expiry == nil {
		t.expiry = time.AfterFunc(k.cfg.KeepFor, func() { k.expire(idler{l, t}) })
	} else {
		t.expiry.Reset(k.cfg.KeepFor)
	}
}

// expire queues a tenure for release. Until then it can be used.
func (k *keeper) expire(i idler) {
	k.mu.Lock()
	k.expired = append(k.expired, i)
	more := k.expiring < expirers
	if more {
		k.expiring++
	}
	k.mu.Unlock()
	for more {
		more = k.releaseExpired()
	}
}

// releaseExpired releases the next tenure that has expired, unless it was used
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
	seized := time.Since(next.tenure.idleSince) >= k.cfg.KeepFor && k.seize(next.line, next.tenure)
	k.mu.Unlock()
	if seized {
		k.retire(context.Background(), next.line)
	}
	return true
}
