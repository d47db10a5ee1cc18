package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/fence"
)

// attempts bounds how often one Acquire starts again: after a session that was
// found to be over, and after an epoch that was found to have moved.
const attempts = 4

// acquire returns a place whose turn has come. campaign is what a candidate proclaims,
// nil for a lock.
func (l *Locker) acquire(ctx context.Context, resource string, campaign *string, try bool) (*place, error) {
	if err := l.keys.validate(resource); err != nil {
		return nil, err
	}
	err := error(nil)
	for range attempts {
		if err = l.enter(ctx, resource, try); err != nil {
			return nil, err
		}
		p, failed := l.attempt(ctx, resource, campaign, try)
		switch err = failed; {
		case err == nil:
			return p, nil
		case errors.Is(err, errSessionOver):
			continue
		case errors.Is(err, fence.ErrLocked), errors.Is(err, fence.ErrLockerClosed):
			return nil, err
		case ctx.Err() != nil && !errors.Is(err, errAtItsTurn):
			return nil, l.unanswered(ctx, resource)
		case ctx.Err() != nil:
			return nil, ended(ctx, resource)
		}
		break
	}
	if l.isClosed() {
		return nil, fence.ErrLockerClosed
	}
	return nil, l.unavailable("acquire "+resource, err)
}

// enter takes this process's turn for the resource.
func (l *Locker) enter(ctx context.Context, resource string, try bool) error {
	switch {
	case l.isClosed():
		return fence.ErrLockerClosed
	case ctx.Err() != nil:
		return ended(ctx, resource)
	case clientClosed(l.client):
		return &fence.UnavailableError{Op: "acquire " + resource, Err: errClientClosed}
	case !try:
		return l.local.enter(ctx, resource)
	}
	free, ahead := l.local.tryEnter(resource)
	if free {
		return nil
	}
	locked := &fence.LockedError{Resource: resource}
	if ahead != nil {
		locked.Holder = ahead.holder
	}
	return locked
}

// attempt makes one key and waits for its turn. It has given the process's turn
// back, or sees to it, when it fails.
func (l *Locker) attempt(ctx context.Context, resource string, campaign *string, try bool) (*place, error) {
	s, err := l.liveSession(ctx)
	if err != nil {
		l.local.leave(resource)
		return nil, err
	}
	if try {
		if err := l.look(ctx, resource); err != nil {
			l.local.leave(resource)
			return nil, err
		}
	}
	p := l.newPlace(s, resource)
	if p == nil {
		l.local.leave(resource)
		return nil, errSessionOver
	}
	p.campaign = campaign
	if err := l.queueUp(ctx, p, try); err != nil {
		return nil, err
	}
	if err := l.await(ctx, p); err != nil {
		l.abandon(p, l.erase)
		return nil, err
	}
	return p, nil
}

// look refuses a resource that is taken, without writing anything.
func (l *Locker) look(ctx context.Context, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	resp, err := l.client.Do(ctx, firstOf(l.keys.queue(resource)))
	if err != nil {
		return err
	}
	if kvs := resp.Get().Kvs; len(kvs) > 0 {
		return &fence.LockedError{Resource: resource, Holder: holderIn(kvs[0].Value)}
	}
	return nil
}

// queueUp writes the key of p. When it fails, p is settled, or will be.
func (l *Locker) queueUp(ctx context.Context, p *place, try bool) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	for epochs := 0; epochs < attempts; {
		sent := l.marks.sending()
		p.number = p.session.number()
		o, err := l.write(ctx, p, sent.epoch, try)
		if err != nil {
			return l.notWritten(p, err, refused(err))
		}
		if o.written {
			p.written(o, sent.epoch.number)
			return nil
		}
		if err := l.refresh(sent, o); err != nil {
			return l.notWritten(p, err, true)
		}
		if o.owner != nil && try {
			l.abandon(p, nil)
			return &fence.LockedError{Resource: p.resource, Holder: holderIn(o.owner.Value)}
		}
		if !o.void {
			epochs++
		}
	}
	return l.notWritten(p, fmt.Errorf("etcd: the epoch key %s changes all the time", l.keys.epoch()), true)
}

// refresh takes the epoch that a Txn found which didn't write.
func (l *Locker) refresh(sent mark, o outcome) error {
	e, err := parseEpoch(l.keys.epoch(), o.epochs)
	if err != nil {
		return err
	}
	if err := l.marks.sawEpoch(sent, e); err != nil {
		l.wentBack(err)
		return err
	}
	return nil
}

// notWritten ends p after its key was not written, or may have been. It returns
// the error for the caller.
func (l *Locker) notWritten(p *place, err error, certain bool) error {
	switch {
	case p.ctx.Err() != nil:
		return l.lost(p)
	case errors.Is(err, errLeaseGone):
		p.session.end(fence.LossExpired)
		return errSessionOver
	case certain:
		l.abandon(p, nil)
	case errors.Is(err, rpctypes.ErrNoSpace):
		l.abandon(p, l.withdraw)
	default:
		l.abandon(p, l.void)
	}
	return err
}

// await waits until p is the first of its queue. Besides watching it reads the
// queue now and then: a watch is never the only truth.
func (l *Locker) await(ctx context.Context, p *place) error {
	select {
	case <-p.turn:
	default:
		polling, stop := context.WithCancel(ctx)
		defer stop()
		l.tasks.start(func(context.Context) { l.poll(polling, &p.followed) })
	}
	select {
	case <-p.turn:
		if p.session.remaining() == 0 {
			p.session.end(fence.LossDeadline)
		}
	case <-p.ctx.Done():
	case <-ctx.Done():
		return p.waited(ctx)
	case err := <-p.denied:
		return err
	case <-l.watch.orphaned:
		return errClientClosed
	}
	if p.ctx.Err() != nil {
		return l.lost(p)
	}
	return nil
}

// waited says for whom p waited when ctx ended.
func (p *place) waited(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first {
		return errAtItsTurn
	}
	return fmt.Errorf("%w: %w", &fence.LockedError{Resource: p.resource, Holder: p.view.holder()}, endOf(ctx))
}

// lost says how p ended before its turn came.
func (l *Locker) lost(p *place) error {
	loss := new(fence.LeaseLostError)
	errors.As(context.Cause(p.ctx), &loss)
	switch loss.Reason {
	case fence.LossClosed:
		return fence.ErrLockerClosed
	case fence.LossWentBack:
		if err := l.marks.wentBack(); err != nil {
			return err
		}
	}
	return &QueueLostError{Resource: p.resource, Reason: loss.Reason, Err: loss.Err}
}
