package keylock

import (
	"context"
	"iter"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

type election struct {
	locker *Locker
	name   string
}

// Election implements fence.Elector, with the order of arrival of Acquire. Observe asks each second, and waits while
// the service can't be reached; it ends with fence.ErrClosed when the Locker is closed.
func (l *Locker) Election(name string) (fence.Election, error) {
	if err := fence.ValidateResource(name); err != nil {
		return nil, err
	}
	return &election{l, name}, nil
}

func (e *election) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	if err := fence.ValidateValue(value); err != nil {
		return nil, err
	}
	p, err := e.locker.acquire(ctx, e.name, true, value)
	if err != nil {
		return nil, err
	}
	return &leadership{p}, nil
}

func (e *election) Leader(ctx context.Context) (leader fence.Leader, err error) {
	l := e.locker
	if l.closing.IsClosed() {
		return leader, errClosed
	}
	owner, err := within(ctx, l, func(ctx context.Context) (Owner, error) { return l.service.Look(ctx, e.name) })
	switch {
	case ctx.Err() != nil:
		return leader, session.Ended(ctx, l.cfg.Name+": leader of "+e.name)
	case err != nil:
		return leader, l.unavailable("leader of "+e.name, err)
	case owner.Holder == "":
		return leader, fence.ErrNoLeader
	}
	return fence.Leader{Grant: l.grantOf(owner), Value: owner.Value}, nil
}

func (e *election) Observe(ctx context.Context) iter.Seq2[fence.Leader, error] {
	l := e.locker
	return session.Observe(ctx, e, min(10*l.cfg.PollInterval, time.Second), l.closing.Closed())
}

type leadership struct{ *lease }

func (le *leadership) Resign(ctx context.Context) error { return le.Release(ctx) }

// Proclaim has the key renewed with the value, as all later renewals do. After an error that is InDoubt one of them may
// have proclaimed it.
func (le *leadership) Proclaim(ctx context.Context, value string) error {
	if err := fence.ValidateValue(value); err != nil {
		return err
	}
	p, l, op := le.lease, le.locker, "proclaim "+le.grant.Resource
	switch {
	case p.Err() != nil:
		return p.Err()
	case ctx.Err() != nil:
		return session.Ended(ctx, l.cfg.Name+": "+op)
	}
	l.mu.Lock()
	p.value = value
	s := p.Session
	l.mu.Unlock()
	renewed, err := make(chan error, 1), error(nil)
	s.RenewNow(func() { renewed <- s.LastFailure() })
	select {
	case err = <-renewed:
	case <-p.Done():
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case p.Err() != nil:
		return p.Err()
	case err != nil:
		reason, err := l.service.Explain(err)
		return &fence.UnavailableError{Call: op, Reason: reason, InDoubt: true, Err: err}
	}
	return nil
}
