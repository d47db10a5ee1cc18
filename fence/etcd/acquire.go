package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	lifecycle "github.com/fencekit/fencekit/fence/internal/session"
)

// attempts bounds the tries of one Acquire, each after its session has ended or the epoch has changed.
const attempts = 4

// Acquire implements fence.Locker. It returns ctx's error and cause; a *fence.InvalidGrantError for a bad name;
// fence.ErrClosed; else a *fence.UnavailableError, whose Reason says what to fix. If ctx ends behind another
// acquisition, the error is also a *fence.LockedError, with the holder if known; if its deadline passes while a
// request is unanswered, a *fence.UnavailableError. Each request is bounded, also without a deadline: see
// Config.TTL.
func (l *Locker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	p, err := l.acquire(ctx, resource, nil)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (l *Locker) acquire(ctx context.Context, resource string, campaign *string) (p *position, err error) {
	if err := l.cluster.Keys.Validate(resource); err != nil {
		return nil, err
	}
	err = l.persist(ctx, resource, func() (err error) {
		p, err = l.attempt(ctx, resource, campaign)
		return err
	})
	return p, err
}

func (l *Locker) persist(ctx context.Context, resource string, try func() error) error {
	err := cluster.ErrLeaseGone
	for n := 0; n < attempts && errors.Is(err, cluster.ErrLeaseGone); n++ {
		err = try()
	}
	switch {
	case err == nil, errors.Is(err, fence.ErrLocked), errors.Is(err, fence.ErrClosed):
		return err
	case ctx.Err() != nil && !errors.Is(err, errAtItsTurn):
		return l.cluster.Unanswered(ctx, "acquire "+resource)
	case ctx.Err() != nil:
		return cluster.Ended(ctx, resource)
	case l.isClosed():
		return cluster.ErrLockerClosed
	}
	return l.cluster.Unavailable("acquire "+resource, err)
}

func (l *Locker) attempt(ctx context.Context, resource string, campaign *string) (*position, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	ln := l.enter(resource)
	if err := ln.wait(ctx); err != nil {
		ln.leave()
		return nil, err
	}
	s, err := l.sessions.Live(ctx)
	if err != nil {
		ln.abandonPlace()
		return nil, err
	}
	p := ln.newPosition(s, campaign)
	if s.Remaining() == 0 {
		l.abandonUnsent(cluster.ErrLeaseGone, p)
		return nil, cluster.ErrLeaseGone
	}
	l.sender.put(p)
	if err := l.await(ctx, p); err != nil {
		l.abandon(p)
		return nil, err
	}
	return p, nil
}

func (l *Locker) ready(ctx context.Context) error {
	switch {
	case l.isClosed():
		return cluster.ErrLockerClosed
	case ctx.Err() != nil:
		return errAtItsTurn
	case l.cluster.Closed():
		return cluster.ErrClientClosed
	}
	return nil
}

func (l *Locker) await(ctx context.Context, p *position) error {
	for {
		done, err := l.look(p)
		if done || err != nil {
			return err
		}
		select {
		case <-p.news:
		case <-ctx.Done():
			return p.waited(ctx)
		case <-l.watcher.ClientClosed():
			return cluster.ErrClientClosed
		}
	}
}

func (l *Locker) look(p *position) (owns bool, err error) {
	p.line.mu.Lock()
	over, first := p.Over(), p.first
	late := first && p.Session.Remaining() == 0
	if first && !late {
		p.news = nil
	}
	p.line.mu.Unlock()
	switch {
	case over != nil: // mutant: turn-of-what-was-lost-is-a-grant
		if errors.Is(over, cluster.ErrLeaseGone) {
			p.Session.End(fence.LossExpired) // so that the next attempt gets another
		}
		return false, l.lost(over)
	case late: // mutant: turn-after-the-deadline-is-a-grant
		p.Session.End(fence.LossDeadline)
		return false, l.lost(p.Err())
	}
	return first, nil
}

func (p *position) waited(ctx context.Context) error {
	ln := p.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	switch first := ln.firstWanted(); {
	case p.first:
		return errAtItsTurn
	case first != nil && first != p:
		return ln.lockedHere(ctx)
	case p.left == leftUnknown:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", &fence.LockedError{Resource: ln.resource, Holder: ln.firstHolder()}, lifecycle.EndOf(ctx))
}

func (l *Locker) lost(over error) error {
	loss := new(fence.LeaseLostError)
	if !errors.As(over, &loss) {
		return over
	}
	switch loss.Reason {
	case fence.LossExpired:
		if loss.Grant.Token == 0 {
			return cluster.ErrLeaseGone
		}
	case fence.LossEpoch:
		return cluster.ErrLeaseGone
	case fence.LossClosed:
		return cluster.ErrLockerClosed
	case fence.LossWentBack:
		if err := l.cluster.WentBack(); err != nil {
			return err
		}
	}
	return lostError{loss}
}

// TryAcquire implements fence.Locker. It writes nothing if the resource is taken. Other errors are those of
// Acquire.
func (l *Locker) TryAcquire(ctx context.Context, resource string) (fence.Lease, error) {
	held, taken, err := l.tryAcquire(ctx, []string{resource})
	switch {
	case err != nil:
		return nil, err
	case len(held) == 0:
		return nil, taken
	}
	return held[0], nil
}

// TryAcquireAll implements fence.Locker for distinct resources: of more than 100, or than etcd takes in one request,
// it acquires the first ones; with Config.MutexKeys the first one. It makes one request, another one if a resource is taken, and rarely more. The
// grants of one call have equal tokens. Its errors are those of Acquire.
func (l *Locker) TryAcquireAll(ctx context.Context, resources ...string) ([]fence.Lease, error) {
	held, _, err := l.tryAcquire(ctx, resources)
	return held, err
}

func (l *Locker) tryAcquire(ctx context.Context, resources []string) (held []fence.Lease, taken *fence.LockedError, err error) {
	for _, r := range resources {
		if err := l.cluster.Keys.Validate(r); err != nil {
			return nil, nil, err
		}
	}
	if len(resources) == 0 {
		return nil, nil, nil
	}
	err = l.persist(ctx, resources[0], func() (err error) {
		held, taken, err = l.claimFirst(ctx, resources)
		return err
	})
	return held, taken, err
}

func (l *Locker) claimFirst(ctx context.Context, resources []string) ([]fence.Lease, *fence.LockedError, error) {
	if err := l.ready(ctx); err != nil {
		return nil, nil, err
	}
	s, err := l.sessions.Live(ctx)
	if err != nil {
		return nil, nil, err
	}
	ps, taken := l.tryQueue(s, resources)
	if s.Remaining() == 0 {
		l.abandonUnsent(cluster.ErrLeaseGone, ps...)
		return nil, nil, cluster.ErrLeaseGone
	}
	ps, behind := l.claimFree(ctx, s, ps)
	if behind != nil {
		taken = behind
	}
	held := make([]fence.Lease, len(ps))
	for i, p := range ps {
		if err == nil {
			err = l.await(ctx, p)
		}
		held[i] = p
	}
	if err != nil {
		for _, p := range ps {
			l.abandon(p)
		}
		return nil, nil, err
	}
	return held, taken, nil
}

func (l *Locker) tryQueue(s *session.Session, resources []string) (ps []*position, taken *fence.LockedError) {
	most := min(maxKeys, len(resources))
	if l.cluster.Keys.Mutex { // the queue of "a" has the keys of "a/b"
		most = 1
	}
	for _, r := range resources[:most] {
		ln := l.enter(r)
		if taken = ln.tryTake(); taken != nil {
			ln.leave()
			break
		}
		ps = append(ps, ln.newPosition(s, nil))
	}
	return ps, taken
}

func (l *Locker) claimFree(ctx context.Context, s *session.Session, ps []*position) (claimed []*position, taken *fence.LockedError) {
	for len(ps) > 0 {
		free, holder := l.claim(ctx, s, ps)
		if free == len(ps) {
			break
		}
		taken = &fence.LockedError{Resource: ps[free].line.resource, Holder: holder}
		l.abandonUnsent(errAbandoned, ps[free:]...)
		ps = ps[:free]
	}
	return ps, taken
}

// claim writes all keys in one Txn if all queues are empty. Otherwise it writes nothing, and returns how many
// positions precede the first taken resource, and its holder; or half their number if etcd can't take so many keys.
// First it deletes leftover keys of the same names.
func (l *Locker) claim(ctx context.Context, s *session.Session, ps []*position) (free int, holder string) {
	ctx, cancel := context.WithTimeout(ctx, l.cluster.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(s.Context(), cancel)()
	txn := func(sent cluster.Mark) (clientv3.Txn, error) { return l.claimTxn(ctx, s, sent, ps) }
	taken := func(resp *clientv3.TxnResponse) bool { return slices.ContainsFunc(resp.Responses, isTaken) }
	resp, epoch, certain, err := l.write(ctx, s, txn, taken)
	n := len(ps)
	if n > 1 && cluster.TooBig(err) {
		return n / 2, ""
	}
	if err != nil {
		for _, p := range ps {
			p.unwritten(err, certain)
		}
		return n, ""
	}
	if resp.Succeeded {
		for _, p := range ps {
			p.written(fence.Token(resp.Header.Revision), epoch, 0)
		}
		return n, ""
	}
	var left []clientv3.Op
	for i, p := range ps {
		kvs := resp.Responses[i].GetResponseRange().Kvs
		if len(kvs) > 0 && string(kvs[0].Key) == p.Key() {
			left = append(left, deleteCreated(p.Key(), kvs[0].CreateRevision))
		}
	}
	if len(left) == 0 {
		free = slices.IndexFunc(resp.Responses, isTaken)
		return free, cluster.HolderIn(resp.Responses[free].GetResponseRange().Kvs[0].Value)
	}
	// The client sent this Txn twice, or an earlier one with a key of the same name.
	if err := l.erase(ctx, left...); err != nil {
		for _, p := range ps {
			p.unwritten(err, false)
		}
		return n, ""
	}
	return l.claim(ctx, s, ps)
}

func (l *Locker) claimTxn(ctx context.Context, s *session.Session, sent cluster.Mark, ps []*position) (clientv3.Txn, error) {
	conditions := l.mayWrite(s, sent)
	var puts, firsts []clientv3.Op
	for _, p := range ps {
		put, err := p.put(sent.Epoch.Number)
		if err != nil {
			return nil, err
		}
		queue := p.line.follower.Queue
		// True for an empty range only: no existing key has create revision 0.
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(queue).WithPrefix(), "=", 0)) // mutant: try-queues-behind-another-key
		puts, firsts = append(puts, put), append(firsts, clientv3.OpGet(queue, clientv3.WithFirstCreate()...))
	}
	return l.cluster.Client.Txn(ctx).If(conditions...).Then(puts...).Else(firsts...), nil
}

func isTaken(first *pb.ResponseOp) bool { return len(first.GetResponseRange().Kvs) > 0 }

type lostError struct{ loss *fence.LeaseLostError }

func (e lostError) Error() string {
	text := fmt.Sprintf("etcd: queue position of %s lost: %s", e.loss.Grant.Resource, e.loss.Reason)
	if e.loss.Err != nil {
		text += ": " + e.loss.Err.Error()
	}
	return text
}

func (e lostError) Unwrap() error { return e.loss.Err }

func (e lostError) Retryable() bool { return true }

func (e lostError) UnavailableReason() fence.UnavailableReason { return fence.QueueLost }

var errAtItsTurn = errors.New("etcd: gave up at its turn")
