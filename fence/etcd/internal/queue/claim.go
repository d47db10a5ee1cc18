package queue

import (
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// TryAcquireAll acquires the first of the resources, up to the first one that is taken, and
// returns their leases. It doesn't wait for any. See etcd.Locker.TryAcquireAll.
//
// It never queues for one resource while it holds a later one, nor for two at once: so it
// adds no way for calls to wait for each other in a circle.
func (q *Queues) TryAcquireAll(ctx context.Context, resources []string) ([]Lease, error) {
	for _, r := range resources {
		if err := q.cluster.Keys.Validate(r); err != nil {
			return nil, err
		}
	}
	if len(resources) == 0 {
		return nil, nil
	}
	err := errSessionOver
	for n := 0; n < attempts && errors.Is(err, errSessionOver); n++ {
		var held []Lease
		if held, err = q.claimFirst(ctx, resources); err == nil {
			return held, nil
		}
	}
	return nil, q.acquireError(ctx, resources[0], err)
}

// claimFirst is one attempt of TryAcquireAll.
func (q *Queues) claimFirst(ctx context.Context, resources []string) ([]Lease, error) {
	lines, err := q.takePlaces(ctx, resources)
	if len(lines) == 0 || err != nil {
		return nil, err
	}
	s, err := q.sessions.Live(ctx)
	if err != nil {
		abandonPlaces(lines)
		return nil, err
	}
	var ps []*Position
	for i, l := range lines {
		p := l.newPosition(s, nil)
		if p == nil {
			abandonPlaces(lines[i:])
			q.abandonAll(ps, errSessionOver)
			return nil, errSessionOver
		}
		ps = append(ps, p)
	}
	free, err := q.claimFree(ctx, s, ps)
	for _, p := range ps[:free] {
		if err == nil {
			err = q.await(ctx, p)
		}
	}
	if err != nil {
		for _, p := range ps[:free] {
			q.abandon(p)
		}
		return nil, err
	}
	held := make([]Lease, free)
	for i, p := range ps[:free] {
		p.quiet()
		held[i] = Lease{p}
	}
	return held, nil
}

// takePlaces takes a place for each resource, up to the first that this process has or
// waits for.
func (q *Queues) takePlaces(ctx context.Context, resources []string) ([]*line, error) {
	var lines []*line
	most := q.sender.roomNow() // etcd allows as many conditions as operations
	if q.cluster.Keys.Mutex {  // the queue of "a" has the keys of "a/b"
		most = 1
	}
	for _, r := range resources[:min(most, len(resources))] {
		l, err := q.takePlace(ctx, r, true)
		if errors.Is(err, fence.ErrLocked) {
			break
		}
		if err != nil {
			abandonPlaces(lines)
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func abandonPlaces(lines []*line) {
	for _, l := range lines {
		l.abandonPlace()
	}
}

// abandonAll abandons positions whose keys have not been written, because of err.
func (q *Queues) abandonAll(ps []*Position, err error) {
	for _, p := range ps {
		p.unwritten(err, true)
		q.abandon(p)
	}
}

// claimFree claims positions, in their order, up to the first whose resource is taken, and
// abandons the others. It returns how many it claimed, or may have claimed if it fails.
func (q *Queues) claimFree(ctx context.Context, s *session.Session, ps []*Position) (int, error) {
	for n := len(ps); n > 0; {
		free, _, err := q.claim(ctx, s, ps[:n])
		if errors.Is(err, cluster.ErrLeaseGone) {
			err = errSessionOver
		}
		if err != nil || free == n {
			return n, err
		}
		q.abandonAll(ps[free:n], errAbandoned)
		n = free
	}
	return 0, nil
}

// claim writes the keys of all positions in one Txn, if all their queues are empty. If not,
// it writes nothing and returns the number of those before the first whose queue isn't, and
// the holder in that one; or half their number, if they are too many for etcd. All tokens are equal, the create revision of the keys (F1).
func (q *Queues) claim(ctx context.Context, s *session.Session, ps []*Position) (free int, holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.cluster.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(s.Context(), cancel)()
	txn := func(sent cluster.Mark) (clientv3.Txn, error) { return q.claimTxn(ctx, s, sent, ps) }
	taken := func(resp *clientv3.TxnResponse) bool { return slices.ContainsFunc(resp.Responses, isTaken) }
	resp, epoch, certain, err := q.write(ctx, txn, taken)
	if n := len(ps); n > 1 && cluster.TooBig(err) {
		q.sender.shrink(err, n)
		return n / 2, "", nil
	}
	if err != nil {
		for _, p := range ps {
			p.unwritten(err, certain)
		}
		if errors.Is(err, cluster.ErrLeaseGone) {
			s.End(fence.LossExpired)
		}
		return 0, "", err
	}
	tokens := make([]int64, len(ps))
	for i := range ps {
		tokens[i] = resp.Header.Revision
		if !resp.Succeeded {
			kvs := resp.Responses[i].GetResponseRange().Kvs
			if len(kvs) == 0 || string(kvs[0].Key) != ps[i].key() {
				return firstTaken(resp.Responses)
			}
			tokens[i] = kvs[0].CreateRevision // the client sent the Txn twice
		}
	}
	for i, p := range ps {
		p.written(fence.Token(tokens[i]), epoch, 0)
	}
	return len(ps), "", nil
}

// claimTxn reads the first key of each queue unless it writes.
func (q *Queues) claimTxn(ctx context.Context, s *session.Session, sent cluster.Mark, ps []*Position) (clientv3.Txn, error) {
	conditions := q.mayWrite(s, sent)
	var puts, firsts []clientv3.Op
	for _, p := range ps {
		put, err := p.put(sent.Epoch.Number)
		if err != nil {
			return nil, err
		}
		queue := p.line.follower.Queue()
		// No existing key has create revision 0, so this holds for an empty range only.
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(queue).WithPrefix(), "=", 0)) // mutant: try-queues-behind-another-key
		puts, firsts = append(puts, put), append(firsts, FirstOf(queue))
	}
	return q.cluster.Client.Txn(ctx).If(conditions...).Then(puts...).Else(firsts...), nil
}

func isTaken(first *pb.ResponseOp) bool { return len(first.GetResponseRange().Kvs) > 0 }

// firstTaken returns the number of queues before the first that isn't empty, and the holder
// in that one.
func firstTaken(firsts []*pb.ResponseOp) (free int, holder string, err error) {
	i := slices.IndexFunc(firsts, isTaken)
	return i, keys.HolderIn(firsts[i].GetResponseRange().Kvs[0].Value), nil
}
