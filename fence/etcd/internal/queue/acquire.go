package queue

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
)

// attempts bounds the tries of one Acquire: it tries again when it finds that its session
// is over, or that the epoch has changed.
const attempts = 4

// Acquire waits until it owns the resource, and returns its lease. See
// etcd.Locker.Acquire for its errors.
func (q *Queues) Acquire(ctx context.Context, resource string) (*Lease, error) {
	return q.lease(q.acquire(ctx, resource, nil, false))
}

// TryAcquire is Acquire, but returns a *fence.LockedError where it would have to wait.
// It writes nothing when the resource is taken.
func (q *Queues) TryAcquire(ctx context.Context, resource string) (*Lease, error) {
	return q.lease(q.acquire(ctx, resource, nil, true))
}

func (q *Queues) lease(p *Position, err error) (*Lease, error) {
	if err != nil {
		return nil, err
	}
	return &Lease{p}, nil
}

// acquire returns a position that is first in its queue. campaign is the value that a
// candidate proclaims, nil for a lock.
func (q *Queues) acquire(ctx context.Context, resource string, campaign *string, try bool) (*Position, error) {
	if err := q.cluster.Keys.Validate(resource); err != nil {
		return nil, err
	}
	err := error(nil)
	for range attempts {
		if err = q.takeTurn(ctx, resource, try); err != nil {
			return nil, err
		}
		p, failed := q.attempt(ctx, resource, campaign, try)
		switch err = failed; {
		case err == nil:
			return p, nil
		case errors.Is(err, errSessionOver):
			continue
		case errors.Is(err, fence.ErrLocked), errors.Is(err, fence.ErrClosed):
			return nil, err
		case ctx.Err() != nil && !errors.Is(err, errAtItsTurn):
			return nil, q.cluster.Unanswered(ctx, "acquire "+resource)
		case ctx.Err() != nil:
			return nil, cluster.Ended(ctx, resource)
		}
		break
	}
	if q.isClosed() {
		return nil, cluster.ErrLockerClosed
	}
	return nil, q.cluster.Unavailable("acquire "+resource, err)
}

// takeTurn waits until no other call of this process has or awaits the resource.
func (q *Queues) takeTurn(ctx context.Context, resource string, try bool) error {
	switch {
	case q.isClosed():
		return cluster.ErrLockerClosed
	case ctx.Err() != nil:
		return cluster.Ended(ctx, resource)
	case q.cluster.Closed():
		return &fence.UnavailableError{Op: "acquire " + resource, Err: cluster.ErrClientClosed}
	case !try:
		return q.local.wait(ctx, resource)
	}
	free, ahead := q.local.tryTake(resource)
	if free {
		return nil
	}
	locked := &fence.LockedError{Resource: resource}
	if ahead != nil {
		locked.Holder = ahead.holder
	}
	return locked
}

// attempt writes one key and waits until it is first in the queue. If it fails, the next
// call of this process gets its turn, at once or when the key is known to be gone.
func (q *Queues) attempt(ctx context.Context, resource string, campaign *string, try bool) (*Position, error) {
	s, err := q.sessions.Live(ctx)
	if err != nil {
		q.local.passOn(resource)
		return nil, err
	}
	if try {
		if err := q.checkFree(ctx, resource); err != nil {
			q.local.passOn(resource)
			return nil, err
		}
	}
	p := q.newPosition(s, resource)
	if p == nil {
		q.local.passOn(resource)
		return nil, errSessionOver
	}
	p.campaign = campaign
	if err := q.queueUp(ctx, p, try); err != nil {
		return nil, err
	}
	if err := q.await(ctx, p); err != nil {
		q.abandon(p, q.erase)
		return nil, err
	}
	return p, nil
}

// checkFree returns a *fence.LockedError if the resource is taken. It writes nothing.
func (q *Queues) checkFree(ctx context.Context, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, q.cluster.RequestTimeout)
	defer cancel()
	resp, err := q.cluster.Client.Do(ctx, FirstOf(q.cluster.Keys.Queue(resource)))
	if err != nil {
		return err
	}
	if kvs := resp.Get().Kvs; len(kvs) > 0 {
		return &fence.LockedError{Resource: resource, Holder: keys.HolderIn(kvs[0].Value)}
	}
	return nil
}

// queueUp writes the key of p. If it fails it settles p, at once or in the background.
func (q *Queues) queueUp(ctx context.Context, p *Position, try bool) error {
	ctx, cancel := context.WithTimeout(ctx, q.cluster.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	for epochs := 0; epochs < attempts; {
		sent := q.cluster.Sending()
		o, err := q.write(ctx, p, sent, try)
		switch {
		case err != nil:
			return q.notWritten(p, err, cluster.Rejected(err))
		case o.written:
			p.written(o, sent.Epoch.Number)
			return nil
		case o.owner != nil:
			q.abandon(p, nil)
			return &fence.LockedError{Resource: p.resource, Holder: keys.HolderIn(o.owner.Value)}
		}
		if err := q.cluster.RefreshEpoch(ctx); err != nil {
			return q.notWritten(p, err, true)
		}
		if q.cluster.Sending().Epoch != sent.Epoch { // else it was void, or an owner that is gone by now
			epochs++
		}
	}
	return q.notWritten(p, fmt.Errorf("etcd: the epoch key %s changes all the time", q.cluster.Keys.Epoch()), true)
}

// notWritten ends p after a Txn failed, and returns the error for the caller. certain means
// that the Txn has certainly written no key.
func (q *Queues) notWritten(p *Position, err error, certain bool) error {
	switch {
	case p.ctx.Err() != nil:
		return q.lost(p)
	case errors.Is(err, cluster.ErrLeaseGone):
		p.session.End(fence.LossExpired)
		return errSessionOver
	case certain:
		q.abandon(p, nil)
	case errors.Is(err, rpctypes.ErrNoSpace):
		q.abandon(p, q.withdraw)
	default:
		q.abandon(p, q.void)
	}
	return err
}

// await waits until p is first in its queue. It polls as well, in case the watch misses an
// event.
func (q *Queues) await(ctx context.Context, p *Position) error {
	select {
	case <-p.turn:
	default:
		polling, stop := context.WithCancel(ctx)
		defer stop()
		q.cluster.Tasks.Start(func(context.Context) { q.watcher.Poll(polling, p.follower) })
	}
	select {
	case <-p.turn:
		if p.session.Remaining() == 0 {
			p.session.End(fence.LossDeadline)
		}
	case <-p.ctx.Done():
	case <-ctx.Done():
		return p.waited(ctx)
	case err := <-p.denied:
		return err
	case <-q.watcher.ClientClosed():
		return cluster.ErrClientClosed
	}
	if p.ctx.Err() != nil {
		return q.lost(p)
	}
	return nil
}

// waited is the error of a wait that ctx ended: it names the holder.
func (p *Position) waited(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first {
		return errAtItsTurn
	}
	return fmt.Errorf("%w: %w", &fence.LockedError{Resource: p.resource, Holder: p.follower.Holder()}, cluster.EndOf(ctx))
}

// lost is the error of a wait that ended because p was lost.
func (q *Queues) lost(p *Position) error {
	loss := new(fence.LeaseLostError)
	errors.As(context.Cause(p.ctx), &loss)
	switch loss.Reason {
	case fence.LossClosed:
		return cluster.ErrLockerClosed
	case fence.LossWentBack:
		if err := q.cluster.WentBack(); err != nil {
			return err
		}
	}
	return &LostError{Resource: p.resource, Reason: loss.Reason, Err: loss.Err}
}
