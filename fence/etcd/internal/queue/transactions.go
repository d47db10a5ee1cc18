package queue

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

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
	return clientv3.OpPut(p.key(), value, clientv3.WithLease(p.session.ID), clientv3.WithPrevKV()), err // mutant: acquire-without-a-lease
}

// mayWrite are the conditions of every Txn of the session that writes lock keys, sent at the
// mark.
func (q *Queues) mayWrite(s *session.Session, sent cluster.Mark) []clientv3.Cmp {
	return []clientv3.Cmp{q.sameEpoch(sent), q.notVoid(s, sent)} // mutant: acquire-in-an-epoch-that-is-over
}

// sameEpoch is the condition that the epoch is still that of the mark, which the grants name.
func (q *Queues) sameEpoch(sent cluster.Mark) clientv3.Cmp {
	return sent.Epoch.Unchanged(q.cluster.Keys.Epoch())
}

// notVoid is the condition that no void rules out a Txn of the session that is sent at the
// mark: a void is written at a revision above those that were seen when the Txns that it
// rules out were sent.
func (q *Queues) notVoid(s *session.Session, sent cluster.Mark) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(q.cluster.Keys.Void(s.ID)), "<", sent.Revision()+1) // mutant: first-void-of-a-session-is-the-only-one
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

// clear removes what positions of one session have left in etcd.
func (q *Queues) clear(ctx context.Context, ps []*Position) error {
	switch left, _, _ := ps[0].leftover(); left {
	case leftDoubt:
		return q.void(ctx, ps...)
	case leftUnlessFull:
		return q.withdraw(ctx, ps...)
	default:
		return q.erase(ctx, deletes(ps)...)
	}
}

// erase runs ops, each of which is a Txn that deletes a key. A Txn within another one costs
// etcd more, so one that is alone isn't put into another.
func (q *Queues) erase(ctx context.Context, ops ...clientv3.Op) error {
	txn := q.cluster.Client.Txn(ctx)
	switch len(ops) {
	case 0:
		return nil
	case 1:
		created, deletes, _ := ops[0].Txn()
		txn = txn.If(created...).Then(deletes...)
	default:
		txn = txn.Then(ops...)
	}
	_, err := q.cluster.Commit(ctx, txn)
	return err
}

// deletes are the operations that delete the keys of positions.
func deletes(ps []*Position) []clientv3.Op {
	ops := make([]clientv3.Op, len(ps))
	for i, p := range ps {
		ops[i] = deleteCreated(p.key(), int64(p.granted().Token))
	}
	return ops
}

// deleteCreated deletes a key with this create revision. The request may arrive late, when a
// later position has a key of the same name: that has another create revision, and stays.
func deleteCreated(key string, revision int64) clientv3.Op {
	created := clientv3.Compare(clientv3.CreateRevision(key), "=", revision)
	return clientv3.OpTxn([]clientv3.Cmp{created}, []clientv3.Op{clientv3.OpDelete(key)}, nil) // mutant: release-by-name
}

// byName are the operations that delete the keys of positions, whatever their create
// revisions, and those that read them.
func byName(ps []*Position) (deletes, gets []clientv3.Op) {
	for _, p := range ps {
		deletes, gets = append(deletes, clientv3.OpDelete(p.key())), append(gets, clientv3.OpGet(p.key()))
	}
	return deletes, gets
}

// void makes sure that keys of a session don't exist and never will, when it isn't known
// whether the Txns that write them have arrived: of the two Txns, the one that etcd applies
// second sees the effect of the first. A session needs one void key: each void writes it
// again, and rules out all Txns that were sent before. It lives under the lease of the lock
// keys: when the lease takes it away, no lock key can be written either.
//
// When the void arrives late, later positions may have keys of these names. Then another
// void was written meanwhile, which this one's condition notices. That void rules out the
// positions' Txns too; keys of theirs that are still there are deleted by create revision.
func (q *Queues) void(ctx context.Context, ps ...*Position) error {
	s := ps[0].session
	put := clientv3.OpPut(q.cluster.Keys.Void(s.ID), "", clientv3.WithLease(s.ID))
	deletes, gets := byName(ps)
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).
		If(q.notVoid(s, q.cluster.Sending())).Then(append(deletes, put)...).Else(gets...)) // mutant: void-leaves-the-key, void-deletes-the-next-key-of-the-name
	if err != nil || resp.Succeeded {
		return err
	}
	return q.eraseFound(ctx, resp.Responses)
}

// withdraw deletes keys after etcd has answered that it is out of space. The Txns that write
// them can't arrive any more, but etcd may give this answer after it has written the key. A
// void key would need space.
func (q *Queues) withdraw(ctx context.Context, ps ...*Position) error {
	// As in cluster.CheckNow: it goes through raft because it could delete.
	never := clientv3.Compare(clientv3.CreateRevision(ps[0].key()), "<", 0)
	deletes, gets := byName(ps)
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(never).Then(deletes...).Else(gets...))
	if err != nil {
		return err
	}
	return q.eraseFound(ctx, resp.Responses)
}

// eraseFound deletes keys that an answer shows. They are those of positions that aren't
// settled: this process makes no other keys of these names before they are.
func (q *Queues) eraseFound(ctx context.Context, answers []*pb.ResponseOp) error {
	var ops []clientv3.Op
	for _, answer := range answers {
		for _, kv := range answer.GetResponseRange().Kvs {
			ops = append(ops, deleteCreated(string(kv.Key), kv.CreateRevision))
		}
	}
	return q.erase(ctx, ops...)
}
