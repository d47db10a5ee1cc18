package etcd

import (
	"context"
	"iter"

	"github.com/fencekit/fencekit/fence"
)

// Observe yields what Leader would return, now and whenever it changes: who
// leads and what it proclaims, or fence.ErrNoLeader. It may skip what changes again
// meanwhile, but it always comes to the latest. While etcd can't be reached, or
// its watch breaks, it waits.
//
// It ends when ctx does; or when the Locker is closed, after an
// fence.ErrLockerClosed; or after a *fence.UnavailableError, when the etcd client
// was closed, or etcd refuses to show the election to its user (ErrPermission).
// Each use of the sequence begins with the present
// leader.
func (e *Election) Observe(ctx context.Context) iter.Seq2[fence.Leader, error] {
	return func(yield func(fence.Leader, error) bool) {
		l := e.locker
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		news := make(chan struct{}, 1)
		f := &followed{queue: l.keys.queue(e.name), over: ctx.Done(), changed: func() {
			select {
			case news <- struct{}{}:
			default:
			}
		}}
		refused := make(chan error, 1)
		f.refused = func(err error) { refused <- err }
		l.watch.add(f)
		defer l.watch.remove(f)
		l.tasks.start(func(tasks context.Context) { l.poll(tasks, f) })
		var last *fence.Leader
		for {
			select {
			case <-news:
			case <-l.local.closed:
				yield(fence.Leader{}, fence.ErrLockerClosed)
				return
			case err := <-refused:
				yield(fence.Leader{}, l.unavailable("observe "+e.name, err))
				return
			case <-l.watch.orphaned:
				yield(fence.Leader{}, l.unavailable("observe "+e.name, errClientClosed))
				return
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return
			}
			first, known := f.head()
			now := e.leader(first)
			if !known || last != nil && *last == now {
				continue
			}
			last = &now
			if !yield(now, noLeader(now)) {
				return
			}
		}
	}
}

// noLeader is the error that goes with a leader.
func noLeader(now fence.Leader) error {
	if now == (fence.Leader{}) {
		return fence.ErrNoLeader
	}
	return nil
}

// head is the first of the queue; false if the queue isn't known.
func (f *followed) head() (queued, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view.head(), f.view.rev != 0
}
