package etcd

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/fence"
)

// errAbandoned is the cause of a place's end that nobody sees: Acquire failed.
var errAbandoned = errors.New("etcd: acquire failed")

// giveBack deletes the key of a lease that was released. If that can't be
// confirmed in one go it goes on in the background, and giveBack waits for it or
// for ctx.
func (l *Locker) giveBack(ctx context.Context, p *place) error {
	p.session.abandon(p)
	l.watch.remove(&p.followed)
	try, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	if err := l.erase(try, p); err == nil {
		p.settle(true)
		return nil
	}
	l.abandon(p, l.erase)
	select {
	case <-p.settled:
	case <-ctx.Done():
		return ended(ctx, "release "+p.resource)
	}
	if !p.confirmed {
		return l.unavailable("release "+p.resource, errSessionOver)
	}
	return nil
}

// abandon ends p, which nobody wants any more. clear is what removes its traces
// from etcd, nil if there are none; it runs in the background until it succeeds
// or the session is over. Until then this process makes no other key for the
// resource.
func (l *Locker) abandon(p *place, clear func(context.Context, *place) error) {
	p.end(errAbandoned)
	if clear == nil {
		p.settle(true)
		return
	}
	p.session.abandon(p)
	l.watch.remove(&p.followed)
	l.tasks.start(func(ctx context.Context) { l.clearAway(ctx, p, clear) })
}

// clearers is how many requests at a time clear away what was abandoned: after an
// etcd that was slow there may be thousands, and renewals come first.
const clearers = 16

// clearAway runs clear until it succeeds, or the client is closed: then this
// process makes no other key, and etcd lets the session expire. After a failure it gives the session
// up if nobody else needs it: then no renewal keeps the traces alive.
func (l *Locker) clearAway(ctx context.Context, p *place, clear func(context.Context, *place) error) {
	for n := 0; ; n++ {
		select {
		case l.clearing <- struct{}{}:
		case <-p.settled:
			return
		case <-ctx.Done():
			return
		}
		try, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
		err := clear(try, p)
		cancel()
		<-l.clearing
		if err == nil {
			p.settle(true)
			return
		}
		if errors.Is(err, errClientClosed) {
			p.settle(false)
			return
		}
		if errors.Is(err, errLeaseGone) {
			p.session.end(fence.LossExpired)
		}
		p.session.giveUp()
		l.cfg.Logger.Warn("a lock key could not be removed yet", "resource", p.resource, "error", err)
		pause(ctx, n, p.settled)
	}
}
