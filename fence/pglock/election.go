package pglock

import (
	"context"
	"fmt"
	"iter"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

type election struct {
	locker *Locker
	name   string
}

// Election implements fence.Elector. Observe asks each second, and waits while the database can't be reached; it ends
// with fence.ErrClosed when the Locker is closed. An error of Proclaim that is InDoubt leaves open whether the value is
// proclaimed.
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
	p, err := e.locker.acquire(ctx, true, value, e.name)
	if err != nil {
		return nil, err
	}
	return &leadership{p, make(chan struct{}, 1)}, nil
}

func (e *election) Leader(ctx context.Context) (fence.Leader, error) {
	if e.locker.closing.IsClosed() {
		return fence.Leader{}, errClosed
	}
	rows, err := e.locker.database.call(ctx, "lock_leader", encode(e.name))
	if err != nil {
		return fence.Leader{}, failed(ctx, "leader of "+e.name, err)
	}
	for _, row := range rows {
		grant := fence.Grant{Resource: e.name, Epoch: number(row[0]), Token: fence.Token(number(row[1])), Holder: decode(row[2])}
		return fence.Leader{Grant: grant, Value: decode(row[3])}, nil
	}
	return fence.Leader{}, fence.ErrNoLeader
}

func (e *election) Observe(ctx context.Context) iter.Seq2[fence.Leader, error] {
	return session.Observe(ctx, e, e.locker.cfg.poll, e.locker.closing.Closed())
}

type leadership struct {
	*lease
	turn chan struct{}
}

func (le *leadership) Resign(ctx context.Context) error { return le.Release(ctx) }

// Proclaim takes turns, so that the last call's value stays.
func (le *leadership) Proclaim(ctx context.Context, value string) error {
	if err := fence.ValidateValue(value); err != nil {
		return err
	}
	p, l, op := le.lease, le.locker, "proclaim "+le.resource()
	select {
	case le.turn <- struct{}{}:
		defer func() { <-le.turn }()
	case <-ctx.Done():
	}
	switch {
	case p.Err() != nil:
		return p.Err()
	case ctx.Err() != nil:
		return ended(ctx, op)
	}
	rows, err := l.database.call(ctx, "lock_proclaim", encode(p.resource()), encode(p.holder()), encode(value))
	switch {
	case p.Err() != nil:
		return p.Err()
	case inDoubt(err):
		return &fence.UnavailableError{Call: op, Reason: fence.Unreachable, InDoubt: true, Err: fmt.Errorf("pglock: not known whether the value was proclaimed: %w", err)}
	case err != nil:
		return failed(ctx, op, err)
	case rows[0][0] == "t":
		return nil
	}
	p.Session.RenewNow(func() { // unless that says that the session is over
		l.mu.Lock()
		defer l.mu.Unlock()
		p.Lose(fence.LossDeleted)
	})
	select {
	case <-p.Done():
		return p.Err()
	case <-ctx.Done():
		return ended(ctx, op)
	}
}
