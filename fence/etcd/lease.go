package etcd

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// lease is a place whose turn has come.
type lease struct{ *place }

var _ fence.Lease = lease{}

func (l lease) Grant() fence.Grant { return l.granted() }

func (l lease) Context() context.Context { return l.ctx }

func (l lease) Done() <-chan struct{} { return l.ctx.Done() }

func (l lease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return l.session.remaining()
}

// AfterContended counts a goroutine that waits in the same Locker as well: it
// needs the lock passed on just as another process does. With Config.MutexKeys it
// calls f at once for a name with a slash: waiters for a shorter name can't be seen.
func (l lease) AfterContended(f func()) (stop func() bool) {
	w := &contendedFunc{f: f}
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return func() bool { return false }
	}
	if l.watchers == nil {
		l.watchers = map[*contendedFunc]struct{}{}
	}
	l.watchers[w] = struct{}{}
	contended := l.place.contended()
	l.mu.Unlock()
	if contended || l.locker.local.waited(l.resource) || l.locker.keys.hidesWaiters(l.resource) {
		l.contend()
	}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, waiting := l.watchers[w]
		delete(l.watchers, w)
		return waiting
	}
}

// Release deletes the key. With a ctx that has ended it returns the error of ctx
// at once, and the first attempt begins in the background without delay; each
// one is bounded by Config.RequestTimeout alone.
func (l lease) Release(ctx context.Context) error {
	if !l.end(fence.ErrReleased) {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	return l.locker.giveBack(ctx, l.place)
}
