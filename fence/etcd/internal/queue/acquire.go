package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
)

// attempts bounds the tries of one Acquire: it tries again when it finds that its session
// is over, or that the epoch has changed.
const attempts = 4

// Acquire waits until it owns the resource, and returns its lease. See
// etcd.Locker.Acquire for its errors.
func (q *Queues) Acquire(ctx context.Context, resource string) (Lease, error) {
	p, err := q.acquire(ctx, resource, nil, false)
	return Lease{p}, err
}

// TryAcquire is Acquire, but returns a *fence.LockedError where it would have to wait.
// It writes nothing when the resource is taken.
func (q *Queues) TryAcquire(ctx context.Context, resource string) (Lease, error) {
	p, err := q.acquire(ctx, resource, nil, true)
	return Lease{p}, err
}

// acquire returns a position that is first in its queue. campaign is the value that a
// candidate proclaims, nil for a lock.
func (q *Queues) acquire(ctx context.Context, resource string, campaign *string, try bool) (*Position, error) {
	if err := q.cluster.Keys.Validate(resource); err != nil {
		return nil, err
	}
	err := errSessionOver
	for n := 0; n < attempts && errors.Is(err, errSessionOver); n++ {
		var p *Position
		if p, err = q.attempt(ctx, resource, campaign, try); err == nil {
			return p, nil
		}
	}
	return nil, q.acquireError(ctx, resource, err)
}

// acquireError is the error of an acquisition that failed with err.
func (q *Queues) acquireError(ctx context.Context, resource string, err error) error {
	switch {
	case errors.Is(err, fence.ErrLocked), errors.Is(err, fence.ErrClosed):
		return err
	case ctx.Err() != nil && !errors.Is(err, errAtItsTurn):
		return q.cluster.Unanswered(ctx, "acquire "+resource)
	case ctx.Err() != nil:
		return cluster.Ended(ctx, resource)
	case q.isClosed():
		return cluster.ErrLockerClosed
	}
	return q.cluster.Unavailable("acquire "+resource, err)
}

// attempt takes a place in the line, writes one key, and waits until that owns the
// resource.
func (q *Queues) attempt(ctx context.Context, resource string, campaign *string, try bool) (*Position, error) {
	l, err := q.takePlace(ctx, resource, try)
	if err != nil {
		return nil, err
	}
	s, err := q.sessions.Live(ctx)
	if err == nil && try {
		err = q.checkFree(ctx, l)
	}
	if err != nil {
		l.abandonPlace()
		return nil, err
	}
	p := l.newPosition(s, campaign)
	if p == nil {
		l.abandonPlace()
		return nil, errSessionOver
	}
	if try {
		err = q.claimOne(ctx, p)
	} else {
		q.sender.put(ctx, p)
	}
	if err == nil {
		err = q.await(ctx, p)
	}
	if err != nil {
		q.abandon(p)
		return nil, err
	}
	p.quiet()
	return p, nil
}

// claimOne claims p, or returns a *fence.LockedError.
func (q *Queues) claimOne(ctx context.Context, p *Position) error {
	free, holder, err := q.claim(ctx, p.session, []*Position{p})
	switch {
	case errors.Is(err, cluster.ErrLeaseGone):
		return errSessionOver
	case err == nil && free == 0:
		p.unwritten(errAbandoned, true)
		return &fence.LockedError{Resource: p.line.resource, Holder: holder}
	}
	return err
}

// takePlace returns the line of the resource when there is a place in it for this call.
func (q *Queues) takePlace(ctx context.Context, resource string, try bool) (*line, error) {
	switch {
	case q.isClosed():
		return nil, cluster.ErrLockerClosed
	case ctx.Err() != nil:
		return nil, errAtItsTurn
	case q.cluster.Closed():
		return nil, cluster.ErrClientClosed
	}
	l := q.enter(resource)
	if try {
		if free, holder := l.tryTake(); !free {
			l.leave()
			return nil, &fence.LockedError{Resource: resource, Holder: holder}
		}
		return l, nil
	}
	if err := l.wait(ctx); err != nil {
		l.leave()
		return nil, err
	}
	return l, nil
}

// checkFree returns a *fence.LockedError if the resource is taken. It writes nothing.
func (q *Queues) checkFree(ctx context.Context, l *line) error {
	ctx, cancel := context.WithTimeout(ctx, q.cluster.RequestTimeout)
	defer cancel()
	resp, err := q.cluster.Client.Do(ctx, FirstOf(l.follower.Queue()))
	if err != nil {
		return err
	}
	if kvs := resp.Get().Kvs; len(kvs) > 0 {
		return &fence.LockedError{Resource: l.resource, Holder: keys.HolderIn(kvs[0].Value)}
	}
	return nil
}

// await waits until p owns the resource.
func (q *Queues) await(ctx context.Context, p *Position) error {
	for {
		done, err := q.look(p)
		if done || err != nil {
			return err
		}
		select {
		case <-p.news:
		case <-ctx.Done():
			return p.waited(ctx)
		case <-q.watcher.ClientClosed():
			return cluster.ErrClientClosed
		}
	}
}

// look reports whether p owns the resource, or why it never will. While neither is known, p
// signals its news.
func (q *Queues) look(p *Position) (owns bool, err error) {
	p.line.mu.Lock()
	failed, over, first := p.failed, p.cause, p.first
	if p.answered && over == nil && !first {
		p.line.poll()
	}
	if p.news == nil && !first {
		p.news = make(chan struct{}, 1)
	}
	p.line.mu.Unlock()
	switch {
	case errors.Is(failed, cluster.ErrLeaseGone):
		return false, errSessionOver
	case errors.Is(over, fence.ErrLeaseLost): // mutant: turn-of-what-was-lost-is-a-grant
		return false, q.lost(p)
	case failed != nil:
		return false, failed
	case first && p.session.Remaining() == 0: // mutant: turn-after-the-deadline-is-a-grant
		p.session.End(fence.LossDeadline)
		return false, q.lost(p)
	}
	return first, nil
}

// quiet ends the signals to an Acquire that returns p.
func (p *Position) quiet() {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.news = nil
}

// waited is the error of a wait that ctx ended: it names the holder.
func (p *Position) waited(ctx context.Context) error {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ahead := l.ahead(); {
	case p.first:
		return errAtItsTurn
	case ahead != nil && ahead != p:
		return l.lockedHere(ctx)
	case !p.answered:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", &fence.LockedError{Resource: l.resource, Holder: l.holderAhead()}, cluster.EndOf(ctx))
}

// lost is the error of a wait that ended because p was lost.
func (q *Queues) lost(p *Position) error {
	loss := new(fence.LeaseLostError)
	errors.As(p.ended(), &loss)
	switch loss.Reason {
	case fence.LossClosed:
		return cluster.ErrLockerClosed
	case fence.LossWentBack:
		if err := q.cluster.WentBack(); err != nil {
			return err
		}
	}
	return &LostError{Resource: p.line.resource, Reason: loss.Reason, Err: loss.Err}
}
