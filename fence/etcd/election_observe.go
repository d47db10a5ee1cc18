package etcd

import (
	"context"
	"iter"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Observe yields what Leader would return, now and whenever it changes: the leader and what
// it proclaims, or fence.ErrNoLeader. It may skip intermediate changes, but always yields
// the latest state. While etcd can't be reached, or its watch breaks, it waits.
//
// It ends when ctx does. It yields fence.ErrClosed and ends when the Locker is closed; and
// a *fence.UnavailableError when the etcd client is closed, or when etcd denies its user
// the right to read the election (fence.Denied). Each iteration begins with the present
// leader.
func (e *Election) Observe(ctx context.Context) iter.Seq2[fence.Leader, error] {
	return func(yield func(fence.Leader, error) bool) {
		l := e.locker
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		o := &observer{news: make(chan struct{}, 1), denied: make(chan error, 1)}
		f := watch.NewFollower(l.cluster.Keys.Queue(e.name), o)
		l.watcher.Add(f)
		defer l.watcher.Remove(f)
		l.cluster.Tasks.Start(func(tasks context.Context) { l.watcher.Poll(tasks, f, ctx.Done()) })
		var last *fence.Leader
		for {
			select {
			case <-o.news:
			case <-l.queues.Closed():
				yield(fence.Leader{}, cluster.ErrLockerClosed)
				return
			case err := <-o.denied:
				yield(fence.Leader{}, l.cluster.Unavailable("observe "+e.name, err))
				return
			case <-l.watcher.ClientClosed():
				yield(fence.Leader{}, l.cluster.Unavailable("observe "+e.name, cluster.ErrClientClosed))
				return
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return
			}
			first, known := f.First()
			now := e.leader(first.Created, first.Value())
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

// observer is the watch.Listener of an iteration.
type observer struct {
	news   chan struct{} // holds one signal
	denied chan error
}

func (o *observer) Changed() {
	select {
	case o.news <- struct{}{}:
	default:
	}
}

func (o *observer) Denied(err error) { o.denied <- err }

// noLeader is the error that goes with a leader.
func noLeader(now fence.Leader) error {
	if now == (fence.Leader{}) {
		return fence.ErrNoLeader
	}
	return nil
}
