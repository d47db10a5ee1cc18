package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// ErrUnknownProclaim: it isn't known whether a value was proclaimed. It may be,
// also later on, until the next Proclaim that returns nil.
var ErrUnknownProclaim = errors.New("etcd: not known whether the value was proclaimed")

// leadership is a fence.Leadership.
type leadership struct {
	fence.Lease
	place *place
	turn  chan struct{} // has room while no Proclaim runs
	left  int64         // mod revision of the key as this process left it
}

func newLeadership(p *place) *leadership {
	return &leadership{Lease: lease{p}, place: p, turn: make(chan struct{}, 1), left: int64(p.granted().Token)}
}

// Resign gives the leadership up. It is Release.
func (l *leadership) Resign(ctx context.Context) error { return l.Release(ctx) }

// Proclaim implements fence.Leadership: see Campaign.
func (l *leadership) Proclaim(ctx context.Context, value string) error {
	if err := validateValue(value); err != nil {
		return err
	}
	p, op := l.place, "proclaim "+l.place.resource
	switch {
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case ctx.Err() != nil:
		return ended(ctx, op)
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		return l.proclaim(ctx, op, value)
	case <-ctx.Done():
		return ended(ctx, op)
	}
}

// proclaim puts the value where the last one was left. If something else is
// there, an earlier Proclaim of unknown outcome has arrived: then it puts the
// value there, and what else may still be under way finds another revision.
func (l *leadership) proclaim(ctx context.Context, op, value string) error {
	p := l.place
	text, err := p.encode(p.granted().Epoch, value)
	if err != nil {
		return err
	}
	request, cancel := context.WithTimeout(ctx, p.locker.cfg.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	for range attempts {
		kv, err := p.locker.replace(request, p, l.left, text)
		if err != nil {
			return l.notProclaimed(ctx, op, err)
		}
		if kv == nil || kv.CreateRevision != int64(p.granted().Token) {
			return l.deposed(ctx, op)
		}
		l.left = kv.ModRevision
		if string(kv.Value) == text {
			return nil
		}
	}
	return p.locker.unavailable(op, fmt.Errorf("etcd: the key %s changes all the time", p.key))
}

// notProclaimed is the error of a Proclaim whose request failed.
func (l *leadership) notProclaimed(ctx context.Context, op string, err error) error {
	p := l.place
	if errors.Is(err, errLeaseGone) {
		p.session.end(fence.LossExpired)
	}
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	failed := ended(ctx, op)
	if ctx.Err() == nil {
		failed = p.locker.unavailable(op, err)
	}
	if refused(err) || errors.Is(err, errClientClosed) {
		return failed
	}
	return fmt.Errorf("%w: %w", ErrUnknownProclaim, failed)
}

// deposed is the error of a Proclaim that found the key gone. It waits until it
// is known why.
func (l *leadership) deposed(ctx context.Context, op string) error {
	p := l.place
	p.mu.Lock()
	p.doubt()
	p.mu.Unlock()
	select {
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-ctx.Done():
		return ended(ctx, op)
	}
}

// replace changes the value of p's key, if that was changed last at revision left,
// at which p wrote it: then it is still p's. It returns the key as it is then, nil
// if there is none.
func (l *Locker) replace(ctx context.Context, p *place, left int64, value string) (*mvccpb.KeyValue, error) {
	resp, err := l.commit(ctx, l.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(p.key), "=", left),
	).Then(clientv3.OpPut(p.key, value, clientv3.WithLease(p.session.id))).Else(clientv3.OpGet(p.key)))
	if err != nil {
		return nil, err
	}
	if resp.Succeeded {
		return &mvccpb.KeyValue{CreateRevision: int64(p.granted().Token), ModRevision: resp.Header.Revision, Value: []byte(value)}, nil
	}
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		return kv, nil
	}
	return nil, nil
}
