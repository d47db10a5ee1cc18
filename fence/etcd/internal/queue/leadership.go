package queue

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// errUnknownProclaim: it isn't known whether the value was proclaimed. It may still take
// effect later, until the next Proclaim that returns nil.
var errUnknownProclaim = errors.New("etcd: not known whether the value was proclaimed")

// Leadership is a position that is first in the queue of an election.
type Leadership struct {
	Lease
	turn chan struct{} // has room while no Proclaim runs
	left int64         // mod revision of the key as this process left it
}

var _ fence.Leadership = (*Leadership)(nil)

// Campaign waits until it is elected, and proclaims value. See etcd.Election.Campaign
// for its errors.
func (q *Queues) Campaign(ctx context.Context, name, value string) (*Leadership, error) {
	if err := validateValue(value); err != nil {
		return nil, err
	}
	p, err := q.acquire(ctx, name, &value, false)
	if err != nil {
		return nil, err
	}
	return &Leadership{Lease: Lease{p}, turn: make(chan struct{}, 1), left: int64(p.granted().Token)}, nil
}

// Resign gives the leadership up. It is Release.
func (l *Leadership) Resign(ctx context.Context) error { return l.Release(ctx) }

// Proclaim implements fence.Leadership: see etcd.Election.Campaign.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if err := validateValue(value); err != nil {
		return err
	}
	p, op := l.position, "proclaim "+l.position.line.resource
	switch {
	case p.ended() != nil:
		return p.ended()
	case ctx.Err() != nil:
		return cluster.Ended(ctx, op)
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		return l.proclaim(ctx, op, value)
	case <-ctx.Done():
		return cluster.Ended(ctx, op)
	}
}

// proclaim replaces the value if the key still has the mod revision that this process last
// wrote. If it has another one, an earlier Proclaim of unknown outcome has arrived;
// proclaim then replaces that, and any request that is still under way finds its revision
// outdated.
func (l *Leadership) proclaim(ctx context.Context, op, value string) error {
	p := l.position
	text, err := p.encode(p.granted().Epoch, value)
	if err != nil {
		return err
	}
	request, cancel := context.WithTimeout(ctx, p.line.queues.cluster.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(p.context(), cancel)()
	for range attempts {
		kv, err := p.line.queues.replace(request, p, l.left, text)
		if err != nil {
			return l.notProclaimed(ctx, op, err)
		}
		if kv == nil || kv.CreateRevision != int64(p.granted().Token) { // mutant: proclaim-of-a-deposed-leader
			return l.deposed(ctx, op)
		}
		l.left = kv.ModRevision
		if string(kv.Value) == text {
			return nil
		}
	}
	return p.line.queues.cluster.Unavailable(op, fmt.Errorf("etcd: the key %s changes all the time", p.key()))
}

// notProclaimed is the error of a Proclaim whose request failed.
func (l *Leadership) notProclaimed(ctx context.Context, op string, err error) error {
	p := l.position
	if errors.Is(err, cluster.ErrLeaseGone) {
		p.session.End(fence.LossExpired)
	}
	if over := p.ended(); over != nil {
		return over
	}
	failed := cluster.Ended(ctx, op)
	if ctx.Err() == nil {
		failed = p.line.queues.cluster.Unavailable(op, err)
	}
	if cluster.Rejected(err) || errors.Is(err, cluster.ErrClientClosed) {
		return failed
	}
	return inDoubt(op, failed)
}

// inDoubt is the error of a failed Proclaim that may still take effect.
func inDoubt(op string, failed error) error {
	doubt := &fence.UnavailableError{Op: op, InDoubt: true, Err: failed}
	if away := (*fence.UnavailableError)(nil); errors.As(failed, &away) {
		doubt.Reason, doubt.Err = away.Reason, away.Err
	}
	doubt.Err = fmt.Errorf("%w: %w", errUnknownProclaim, doubt.Err)
	return doubt
}

// deposed is the error of a Proclaim that found the key gone. It waits until the reason is
// known.
func (l *Leadership) deposed(ctx context.Context, op string) error {
	p := l.position
	p.line.mu.Lock()
	p.askWhyGone()
	p.line.mu.Unlock()
	select {
	case <-p.context().Done():
		return p.ended()
	case <-ctx.Done():
		return cluster.Ended(ctx, op)
	}
}

// replace sets the value of p's key if the key's mod revision is still left, the one that p
// last wrote. It returns the key as it is afterwards, nil if there is none.
func (q *Queues) replace(ctx context.Context, p *Position, left int64, value string) (*mvccpb.KeyValue, error) {
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(p.key()), "=", left),
	).Then(clientv3.OpPut(p.key(), value, clientv3.WithLease(p.session.ID))).Else(clientv3.OpGet(p.key())))
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
