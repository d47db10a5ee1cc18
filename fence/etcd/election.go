package etcd

import (
	"context"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/queue"
)

// Election implements fence.Election.
type Election struct {
	locker *Locker
	name   string
}

var _ fence.Election = (*Election)(nil)

// Election returns the election of this name. The rules for names of resources apply: a bad
// name is a *fence.InvalidGrantError. It makes no request.
func (l *Locker) Election(name string) (*Election, error) {
	if err := l.cluster.Keys.Validate(name); err != nil {
		return nil, err
	}
	return &Election{locker: l, name: name}, nil
}

// Campaign waits until it is elected, and then proclaims value, which may be
// empty and has at most 4096 bytes of valid UTF-8. It is Acquire
// otherwise: with the same errors, and in one queue with it.
//
// Proclaim of the Leadership has the same bounds on its value. Calls take effect one after
// another. Its errors: if the leadership is over, the cause of Context, a
// *fence.LeaseLostError or fence.ErrReleased, even if this call is what found out; an
// observer may have seen the value, but this process no longer leads. Else the error of
// ctx, or a *fence.UnavailableError: if that is InDoubt, the value may or may not be
// proclaimed until the next Proclaim that returns nil; if not, it isn't. A bad value is
// fence.ErrInvalid.
func (e *Election) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	led, err := e.locker.queues.Campaign(ctx, e.name, value)
	if err != nil {
		return nil, err
	}
	return led, nil
}

// Leader returns the present leader, or fence.ErrNoLeader. Its grant is the one that the
// leader's key names: with Config.MutexKeys without Epoch and Holder, since the key holds
// the value alone. By the time it returns another one may lead: only a fence can decide
// that. Its other errors: the one of ctx, and its cause; fence.ErrClosed; else a
// *fence.UnavailableError.
func (e *Election) Leader(ctx context.Context) (fence.Leader, error) {
	l, op := e.locker, "leader of "+e.name
	switch {
	case l.closed.Load():
		return fence.Leader{}, cluster.ErrLockerClosed
	case l.cluster.Closed():
		return fence.Leader{}, l.cluster.Unavailable(op, cluster.ErrClientClosed)
	}
	request, cancel := context.WithTimeout(ctx, l.cluster.RequestTimeout)
	defer cancel()
	resp, err := l.cluster.Client.Do(request, queue.FirstOf(l.cluster.Keys.Queue(e.name)))
	switch {
	case ctx.Err() != nil:
		return fence.Leader{}, cluster.Ended(ctx, op)
	case err != nil:
		return fence.Leader{}, l.cluster.Unavailable(op, err)
	}
	for _, kv := range resp.Get().Kvs {
		return e.leader(kv.CreateRevision, kv.Value), nil
	}
	return fence.Leader{}, fence.ErrNoLeader
}

// leader reads the first key of the queue, which was created at that revision; 0 if there is
// none.
func (e *Election) leader(created int64, value []byte) fence.Leader {
	if created == 0 {
		return fence.Leader{}
	}
	v, _ := keys.ParseLockValue(value)
	if e.locker.cluster.Keys.Proclaimed(value) {
		v = keys.LockValue{Value: string(value)}
	}
	return fence.Leader{
		Grant: fence.Grant{Resource: e.name, Epoch: v.Epoch, Token: fence.Token(created), Holder: v.Holder},
		Value: v.Value,
	}
}
