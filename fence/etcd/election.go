package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Election implements fence.Election.
type Election struct {
	locker *Locker
	name   string
}

var _ fence.Election = (*Election)(nil)

// Election implements fence.Elector.
func (l *Locker) Election(name string) (fence.Election, error) {
	if err := l.cluster.Keys.Validate(name); err != nil {
		return nil, err
	}
	return &Election{locker: l, name: name}, nil
}

// Campaign implements fence.Election. Its errors are those of Acquire.
//
// Calls of Proclaim of the Leadership take effect one after another. It returns the cause of
// Context if the leadership is over, though an observer may have seen the value; else the error of ctx, or a
// *fence.UnavailableError. If that is InDoubt, the value may or may not be proclaimed until the next Proclaim that
// returns nil.
func (e *Election) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	if err := fence.ValidateValue(value); err != nil {
		return nil, err
	}
	p, err := e.locker.acquire(ctx, e.name, &value)
	if err != nil {
		return nil, err
	}
	return &leadership{position: p, turn: make(chan struct{}, 1), written: int64(p.Grant().Token)}, nil
}

// Leader implements fence.Election. With Config.MutexKeys the grant has no Epoch and Holder. Besides
// fence.ErrNoLeader it returns fence.ErrClosed and *fence.UnavailableError.
func (e *Election) Leader(ctx context.Context) (fence.Leader, error) {
	l := e.locker
	if l.isClosed() {
		return fence.Leader{}, cluster.ErrLockerClosed
	}
	var resp *clientv3.GetResponse
	err := l.cluster.Ask(ctx, "leader of "+e.name, func(ctx context.Context) (err error) {
		resp, err = l.cluster.Client.Get(ctx, l.cluster.Keys.Queue(e.name), clientv3.WithFirstCreate()...)
		return err
	})
	if err != nil {
		return fence.Leader{}, err
	}
	for _, kv := range resp.Kvs {
		return e.leader(kv.CreateRevision, kv.Value)
	}
	return e.leader(0, nil)
}

func (e *Election) leader(created int64, value []byte) (fence.Leader, error) {
	if created == 0 {
		return fence.Leader{}, fence.ErrNoLeader
	}
	v, _ := cluster.ParseLockValue(value)
	if e.locker.cluster.Keys.Proclaimed(value) {
		v = cluster.LockValue{Value: string(value)}
	}
	grant := fence.Grant{Resource: e.name, Epoch: v.Epoch, Token: fence.Token(created), Holder: v.Holder}
	return fence.Leader{Grant: grant, Value: v.Value}, nil
}

// Observe implements fence.Election. While etcd can't be reached it waits. It ends with fence.ErrClosed when the
// Locker is closed, and with a *fence.UnavailableError when the etcd client is closed or its user may not read the
// election (fence.Denied).
func (e *Election) Observe(ctx context.Context) iter.Seq2[fence.Leader, error] {
	return func(yield func(fence.Leader, error) bool) {
		l := e.locker
		o := &observer{news: make(chan struct{}, 1), denied: make(chan error, 1)}
		f := &watch.Follower{Queue: l.cluster.Keys.Queue(e.name), Listener: o}
		l.watcher.Add(f)
		defer l.watcher.Remove(f)
		var last *fence.Leader
		for {
			var over error
			select {
			case <-o.news:
			case <-l.closing.Closed():
				over = cluster.ErrLockerClosed
			case err := <-o.denied:
				over = l.cluster.Unavailable("observe "+e.name, err)
			case <-l.watcher.ClientClosed():
				over = l.cluster.Unavailable("observe "+e.name, cluster.ErrClientClosed)
			case <-ctx.Done():
			}
			switch {
			case ctx.Err() != nil:
				return
			case over != nil:
				yield(fence.Leader{}, over)
				return
			}
			first, known := f.First()
			now, err := e.leader(first.Created, []byte(first.Value))
			if !known || last != nil && *last == now {
				continue
			}
			last = &now
			if !yield(now, err) {
				return
			}
		}
	}
}

type observer struct {
	news   chan struct{}
	denied chan error
}

func (o *observer) Changed() {
	select {
	case o.news <- struct{}{}:
	default:
	}
}

func (o *observer) Waits() bool { return true }

func (o *observer) Denied(err error) { o.denied <- err }

type leadership struct {
	*position
	turn    chan struct{}
	written int64 // mod revision of the key as last written here
}

var _ fence.Leadership = (*leadership)(nil)

func (le *leadership) Resign(ctx context.Context) error { return le.Release(ctx) }

// Proclaim implements fence.Leadership: see etcd.Election.Campaign.
func (le *leadership) Proclaim(ctx context.Context, value string) error {
	if err := fence.ValidateValue(value); err != nil {
		return err
	}
	p, op := le.position, "proclaim "+le.position.line.resource
	switch {
	case p.Err() != nil:
		return p.Err()
	case ctx.Err() != nil:
		return cluster.Ended(ctx, op)
	}
	select {
	case le.turn <- struct{}{}:
		defer func() { <-le.turn }()
		return le.proclaim(ctx, op, value)
	case <-ctx.Done():
		return cluster.Ended(ctx, op)
	}
}

// proclaim replaces the value if the key has the mod revision that this process last wrote. Another one comes from
// an earlier Proclaim of unknown outcome; proclaim replaces that too, and any request still under way is then
// outdated.
func (le *leadership) proclaim(ctx context.Context, op, value string) error {
	p := le.position
	text, err := p.encode(p.Grant().Epoch, value)
	if err != nil {
		return err
	}
	c := p.line.locker.cluster
	request, cancel := context.WithTimeout(ctx, c.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(p.Context(), cancel)()
	for range attempts {
		resp, err := c.Commit(request, c.Client.Txn(request).If(
			clientv3.Compare(clientv3.ModRevision(p.Key()), "=", le.written),
		).Then(clientv3.OpPut(p.Key(), text, clientv3.WithLease(p.Session.ID))).Else(clientv3.OpGet(p.Key())))
		if err != nil {
			return le.notProclaimed(ctx, op, err)
		}
		if resp.Succeeded {
			le.written = resp.Header.Revision
			return nil
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != int64(p.Grant().Token) { // mutant: proclaim-of-a-deposed-leader
			return le.deposed(ctx, op)
		}
		le.written = kvs[0].ModRevision
		if string(kvs[0].Value) == text {
			return nil
		}
	}
	return c.Unavailable(op, fmt.Errorf("etcd: the key %s changes all the time", p.Key()))
}

func (le *leadership) notProclaimed(ctx context.Context, op string, err error) error {
	p := le.position
	if errors.Is(err, cluster.ErrLeaseGone) {
		p.Session.End(fence.LossExpired)
	}
	if over := p.Err(); over != nil {
		return over
	}
	failed := cluster.Ended(ctx, op)
	if ctx.Err() == nil {
		failed = p.line.locker.cluster.Unavailable(op, err)
	}
	if cluster.Rejected(err) || errors.Is(err, cluster.ErrClientClosed) {
		return failed
	}
	doubt := &fence.UnavailableError{Call: op, InDoubt: true, Err: failed}
	if away := (*fence.UnavailableError)(nil); errors.As(failed, &away) {
		doubt.Reason, doubt.Err = away.Reason, away.Err
	}
	doubt.Err = fmt.Errorf("etcd: not known whether the value was proclaimed: %w", doubt.Err)
	return doubt
}

func (le *leadership) deposed(ctx context.Context, op string) error {
	p := le.position
	p.line.mu.Lock()
	p.askWhyGone()
	p.line.mu.Unlock()
	select {
	case <-p.Context().Done():
		return p.Err()
	case <-ctx.Done():
		return cluster.Ended(ctx, op)
	}
}
