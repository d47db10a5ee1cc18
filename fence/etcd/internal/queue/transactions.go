package queue

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// put is the operation that writes the key of p. It returns the key that it replaces: that is
// p's own, if the client sends the Txn twice.
func (p *Position) put(epoch int64) (clientv3.Op, error) {
	proclaimed := ""
	if p.campaign != nil {
		proclaimed = *p.campaign
	}
	value, err := p.encode(epoch, proclaimed)
	return clientv3.OpPut(p.key(), value, clientv3.WithLease(p.session.ID), clientv3.WithPrevKV()), err
}

// wanted are the conditions of every Txn that writes lock keys, sent at the mark: the epoch
// is the one that the grants name, and no void rules the Txn out.
func (q *Queues) wanted(s *session.Session, sent cluster.Mark) []clientv3.Cmp {
	return []clientv3.Cmp{sent.Epoch.Unchanged(q.cluster.Keys.Epoch()), q.notVoid(s, sent)}
}

// notVoid is the condition that no void rules out a Txn of the session that is sent at the
// mark: a void is written at a revision above those that were seen when the Txns that it
// rules out were sent.
func (q *Queues) notVoid(s *session.Session, sent cluster.Mark) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(q.cluster.Keys.Void(s.ID)), "<", sent.Revision()+1)
}

// write commits a Txn that writes lock keys. When its conditions fail it reads the epoch and
// commits the Txn anew, unless final says of the answer that the conditions failed for
// another reason. It returns the epoch of the Txn; and if there is an error, whether the Txn
// has certainly changed nothing.
func (q *Queues) write(ctx context.Context, txn func(cluster.Mark) (clientv3.Txn, error), final func(*clientv3.TxnResponse) bool) (resp *clientv3.TxnResponse, epoch int64, certain bool, err error) {
	for epochs := 0; epochs < attempts; {
		sent := q.cluster.Sending()
		t, err := txn(sent)
		if err != nil {
			return nil, 0, true, err
		}
		resp, err := q.cluster.Commit(ctx, t)
		if err != nil {
			return nil, 0, cluster.Rejected(err), err
		}
		if resp.Succeeded || final(resp) {
			return resp, sent.Epoch.Number, false, nil
		}
		if err := q.cluster.RefreshEpoch(ctx); err != nil {
			return nil, 0, true, err
		}
		if q.cluster.Sending().Epoch != sent.Epoch { // else it was void
			epochs++
		}
	}
	return nil, 0, true, fmt.Errorf("etcd: the epoch key %s changes all the time", q.cluster.Keys.Epoch())
}

// FirstOf reads the first key of a queue.
func FirstOf(queue string) clientv3.Op {
	return clientv3.OpGet(queue, clientv3.WithFirstCreate()...)
}

// clear removes what positions of one session have left in etcd. With MutexKeys it is one.
func (q *Queues) clear(ctx context.Context, ps []*Position) error {
	switch left, _, _ := ps[0].leftover(); {
	case left == leftDoubt:
		return q.void(ctx, ps...)
	case left == leftUnlessFull && q.cluster.Keys.Mutex:
		return q.withdraw(ctx, ps[0])
	default:
		return q.erase(ctx, ps...)
	}
}

// erase deletes keys. With MutexKeys it is one, and a later key of the session has the same
// name; it has another create revision, and stays. Otherwise no other key ever has it.
func (q *Queues) erase(ctx context.Context, ps ...*Position) error {
	txn := q.cluster.Client.Txn(ctx)
	if q.cluster.Keys.Mutex {
		txn = txn.If(clientv3.Compare(clientv3.CreateRevision(ps[0].key()), "=", int64(ps[0].granted().Token)))
	}
	_, err := q.cluster.Commit(ctx, txn.Then(deletes(ps)...))
	return err
}

func deletes(ps []*Position) []clientv3.Op {
	ops := make([]clientv3.Op, len(ps))
	for i, p := range ps {
		ops[i] = clientv3.OpDelete(p.key())
	}
	return ops
}

// void makes sure that keys of a session don't exist and never will, when it isn't known
// whether the Txns that write them have arrived: of the two Txns, the one that etcd applies
// second sees the effect of the first. A session needs one void key: each void writes it
// again, and rules out all Txns that were sent before. It lives under the lease of the lock
// keys: when the lease takes it away, no lock key can be written either.
//
// With MutexKeys it is one key, which a later acquisition may have written again when this
// Txn arrives. If the void key was written meanwhile, that void rules out p's Txn too. Then
// p's key may still be there, and is deleted by its create revision.
func (q *Queues) void(ctx context.Context, ps ...*Position) error {
	p := ps[0]
	txn, put := q.cluster.Client.Txn(ctx), clientv3.OpPut(q.cluster.Keys.Void(p.session.ID), "", clientv3.WithLease(p.session.ID))
	if q.cluster.Keys.Mutex {
		txn = txn.If(q.notVoid(p.session, q.cluster.Sending()))
	}
	resp, err := q.cluster.Commit(ctx, txn.Then(append(deletes(ps), put)...).Else(clientv3.OpGet(p.key())))
	if err != nil || resp.Succeeded {
		return err
	}
	return q.eraseFound(ctx, p, resp.Responses[0].GetResponseRange().Kvs)
}

// withdraw deletes p's key after etcd has answered that it is out of space. The Txn can't
// arrive any more, but etcd may give this answer after it has written the key. A void key
// would need space.
func (q *Queues) withdraw(ctx context.Context, p *Position) error {
	// As in cluster.CheckNow: it goes through raft because it could delete.
	never := clientv3.Compare(clientv3.CreateRevision(p.key()), "<", 0)
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(never).Then(clientv3.OpDelete(p.key())).Else(clientv3.OpGet(p.key())))
	if err != nil {
		return err
	}
	return q.eraseFound(ctx, p, resp.Responses[0].GetResponseRange().Kvs)
}

// eraseFound deletes the key of p that an answer shows. The key is p's: this process makes
// no other key of that name before p is settled. It deletes by create revision, because the
// request may arrive late, when the next key of that name exists (Config.MutexKeys).
func (q *Queues) eraseFound(ctx context.Context, p *Position, kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 {
		return nil
	}
	p.line.mu.Lock()
	p.token = fence.Token(kvs[0].CreateRevision)
	p.line.mu.Unlock()
	return q.erase(ctx, p)
}
