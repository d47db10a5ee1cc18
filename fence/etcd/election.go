package etcd

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fencekit/fencekit/fence"
)

// MaxValueLen is the longest value that a leader can proclaim, in bytes.
const MaxValueLen = 4096

// ErrInvalidValue: a value can't be proclaimed. See InvalidValueError.
var ErrInvalidValue = errors.New("etcd: invalid value")

// InvalidValueError says why a value can't be proclaimed. It is ErrInvalidValue.
type InvalidValueError struct{ Reason string }

func (e *InvalidValueError) Error() string { return "etcd: invalid value: it " + e.Reason }

// Is reports whether target is ErrInvalidValue.
func (e *InvalidValueError) Is(target error) bool { return target == ErrInvalidValue }

func validateValue(value string) error {
	switch {
	case len(value) > MaxValueLen:
		return &InvalidValueError{Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(value), MaxValueLen)}
	case !utf8.ValidString(value):
		return &InvalidValueError{Reason: "is not valid UTF-8"}
	}
	return nil
}

// Election implements fence.Election.
type Election struct {
	locker *Locker
	name   string
}

var _ fence.Election = (*Election)(nil)

// Election returns the election of a name, to which the same rules apply as to
// the name of a resource: a bad one is a *fence.InvalidGrantError. It doesn't
// talk to etcd.
func (l *Locker) Election(name string) (*Election, error) {
	if err := l.keys.validate(name); err != nil {
		return nil, err
	}
	return &Election{locker: l, name: name}, nil
}

// Campaign waits until it is elected, and then proclaims value, which may be
// empty and has at most MaxValueLen bytes of valid UTF-8. It is Acquire
// otherwise: with the same errors, and in one queue with it.
//
// Proclaim of the Leadership has the same bounds on its value. Calls take effect one
// after another. Its errors: the cause of Context, a *fence.LeaseLostError or
// fence.ErrReleased, if the leadership is over, whether this leader knew or finds out
// by it: an observer may have seen the value, but it is not the leader's any more. The
// error of ctx, or a *fence.UnavailableError: if it is ErrUnknownProclaim as well the
// value may or may not be proclaimed, else it is not.
func (e *Election) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	if err := validateValue(value); err != nil {
		return nil, err
	}
	p, err := e.locker.acquire(ctx, e.name, &value, false)
	if err != nil {
		return nil, err
	}
	return newLeadership(p), nil
}

// Leader returns the present leader, or fence.ErrNoLeader. Its grant is the one that the
// leader's key names: with Config.MutexKeys without Epoch and Holder, since the key
// holds the value alone. By the time it returns another one may lead: only a fence
// can tell. Its other errors: the one of ctx, and
// its cause; fence.ErrLockerClosed; else a *fence.UnavailableError.
func (e *Election) Leader(ctx context.Context) (fence.Leader, error) {
	l, op := e.locker, "leader of "+e.name
	switch {
	case l.isClosed():
		return fence.Leader{}, fence.ErrLockerClosed
	case clientClosed(l.client):
		return fence.Leader{}, l.unavailable(op, errClientClosed)
	}
	request, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	resp, err := l.client.Do(request, firstOf(l.keys.queue(e.name)))
	switch {
	case ctx.Err() != nil:
		return fence.Leader{}, ended(ctx, op)
	case err != nil:
		return fence.Leader{}, l.unavailable(op, err)
	}
	for _, kv := range resp.Get().Kvs {
		return e.leader(queued{kv.CreateRevision, kv.Value}), nil
	}
	return fence.Leader{}, fence.ErrNoLeader
}

// leader reads the first key of the queue.
func (e *Election) leader(first queued) fence.Leader {
	if first.created == 0 {
		return fence.Leader{}
	}
	v, _ := parseLockValue(first.value)
	if e.locker.keys.proclaimed(first.value) {
		v = lockValue{Value: string(first.value)}
	}
	return fence.Leader{
		Grant: fence.Grant{Resource: e.name, Epoch: v.Epoch, Token: fence.Token(first.created), Holder: v.Holder},
		Value: v.Value,
	}
}
