package queue

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/background"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// errAbandoned ends a position whose Acquire failed. No caller has its context.
var errAbandoned = errors.New("etcd: acquire failed")

// giveBack deletes the key of a lease that was released. If the first attempt isn't
// confirmed, more are made in the background, and giveBack waits for them or for ctx.
func (q *Queues) giveBack(ctx context.Context, p *Position) error {
	p.session.Abandon(p)
	q.watcher.Remove(p.follower)
	try, cancel := context.WithTimeout(ctx, q.cluster.RequestTimeout)
	defer cancel()
	if err := q.erase(try, p); err == nil {
		p.settle(true)
		return nil
	}
	q.abandon(p, q.erase)
	select {
	case <-p.settled:
	case <-ctx.Done():
		return cluster.Ended(ctx, "release "+p.resource)
	}
	if !p.confirmed {
		return q.cluster.Unavailable("release "+p.resource, errSessionOver)
	}
	return nil
}

// abandon ends p, which is no longer wanted. clear removes its key from etcd, nil if there
// is none; it runs in the background until it succeeds or the session is over. Until then
// this process makes no other key for the resource.
func (q *Queues) abandon(p *Position, clear func(context.Context, *Position) error) {
	p.end(errAbandoned)
	if clear == nil {
		p.settle(true)
		return
	}
	p.session.Abandon(p)
	q.watcher.Remove(p.follower)
	q.cluster.Tasks.Start(func(ctx context.Context) { q.clearAway(ctx, p, clear) })
}

// maxClearing is how many requests at a time remove abandoned keys. After etcd was slow
// there may be thousands, which must not delay renewals.
const maxClearing = 16

// clearAway runs clear until it succeeds, or until the client is closed: then this process
// makes no more keys, and the session expires in etcd. After a failure it ends the session
// if nothing else needs it, so that no renewal keeps the key alive.
func (q *Queues) clearAway(ctx context.Context, p *Position, clear func(context.Context, *Position) error) {
	for n := 0; !p.isSettled(); n++ {
		select {
		case q.clearing <- struct{}{}:
		case <-p.settled:
			return
		case <-ctx.Done():
			return
		}
		try, cancel := context.WithTimeout(ctx, q.cluster.RequestTimeout)
		err := clear(try, p)
		cancel()
		<-q.clearing
		if err == nil {
			p.settle(true)
			return
		}
		if errors.Is(err, cluster.ErrClientClosed) {
			p.settle(false)
			return
		}
		if errors.Is(err, cluster.ErrLeaseGone) {
			p.session.End(fence.LossExpired)
		}
		p.session.EndIfUnneeded()
		q.cluster.Logger.Warn("a lock key could not be removed yet", "resource", p.resource, "error", err)
		background.Pause(ctx, n, p.settled)
	}
}
