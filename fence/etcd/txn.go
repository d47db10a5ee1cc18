package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// put is the operation that writes the key of p. It returns the key that it replaces: p's own, if the client sends
// the Txn twice.
func (p *position) put(epoch int64) (clientv3.Op, error) {
	proclaimed := ""
	if p.campaign != nil {
		proclaimed = *p.campaign
	}
	value, err := p.encode(epoch, proclaimed)
	return clientv3.OpPut(p.Key(), value, clientv3.WithLease(p.session.ID), clientv3.WithPrevKV()), err // mutant: acquire-without-a-lease
}

// mayWrite are the conditions of every Txn of the session that writes lock keys, sent at the mark: the epoch is still
// that of the mark, which the grants name, and no void rules the Txn out.
func (l *Locker) mayWrite(s *session.Session, sent cluster.Mark) []clientv3.Cmp {
	return []clientv3.Cmp{sent.Epoch.Unchanged(l.cluster.Keys.Epoch()), l.notVoid(s, sent)} // mutant: acquire-in-an-epoch-that-is-over
}

// notVoid is the condition that no void rules out a Txn of the session that is sent at the mark: a void is written
// at a revision above those that were seen when the Txns that it rules out were sent.
func (l *Locker) notVoid(s *session.Session, sent cluster.Mark) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.cluster.Keys.Void(s.ID)), "<", sent.Revision()+1) // mutant: first-void-of-a-session-is-the-only-one
}

// write commits a Txn that writes lock keys. When its conditions fail it reads the epoch and commits the Txn anew,
// unless final says that they failed for another reason. It returns the epoch of the Txn; and with an error, whether
// the Txn has certainly changed nothing.
func (l *Locker) write(ctx context.Context, txn func(cluster.Mark) (clientv3.Txn, error), final func(*clientv3.TxnResponse) bool) (resp *clientv3.TxnResponse, epoch int64, certain bool, err error) {
	for epochs := 0; epochs < attempts; {
		sent := l.cluster.Sending()
		t, err := txn(sent)
		if err != nil {
			return nil, 0, true, err
		}
		resp, err := l.cluster.Commit(ctx, t)
		if err != nil {
			return nil, 0, cluster.Rejected(err), err
		}
		if resp.Succeeded || final != nil && final(resp) {
			return resp, sent.Epoch.Number, false, nil
		}
		if err := l.cluster.RefreshEpoch(ctx); err != nil {
			return nil, 0, true, err
		}
		if l.cluster.Sending().Epoch != sent.Epoch { // else it was void
			epochs++
		}
	}
	return nil, 0, true, fmt.Errorf("etcd: the epoch key %s changes all the time", l.cluster.Keys.Epoch())
}

// erase runs ops, each of which is a Txn that deletes a key. A Txn within another one costs etcd more, so one that is
// alone isn't put into another.
func (l *Locker) erase(ctx context.Context, ops ...clientv3.Op) error {
	txn := l.cluster.Client.Txn(ctx)
	switch len(ops) {
	case 0:
		return nil
	case 1:
		created, deletes, _ := ops[0].Txn()
		txn = txn.If(created...).Then(deletes...)
	default:
		txn = txn.Then(ops...)
	}
	_, err := l.cluster.Commit(ctx, txn)
	return err
}

func deletes(ps []*position) []clientv3.Op {
	ops := make([]clientv3.Op, len(ps))
	for i, p := range ps {
		ops[i] = deleteCreated(p.Key(), int64(p.Grant().Token))
	}
	return ops
}

// deleteCreated deletes a key with this create revision. The request may arrive late: a later position's key of the
// same name has another create revision, and stays.
func deleteCreated(key string, revision int64) clientv3.Op {
	created := clientv3.Compare(clientv3.CreateRevision(key), "=", revision)
	return clientv3.OpTxn([]clientv3.Cmp{created}, []clientv3.Op{clientv3.OpDelete(key)}, nil) // mutant: release-by-name
}

// withdraw deletes the keys of ps, positions of one session, if they are there.
//
// The Txns that write them may still be under way. Then a void makes sure that they write nothing: of a void and
// such a Txn, the one that etcd applies second sees the effect of the first. A session needs one void key: each
// void writes it again, and rules out all Txns that were sent before, so it does no harm if it arrives late. The
// key lives under the lease of the lock keys: when that ends, no lock key can be written either.
//
// Without void, etcd has answered the Txn. If the answer was that etcd is out of space, it may have written the key
// all the same; a void key would need space.
func (l *Locker) withdraw(ctx context.Context, void bool, ps ...*position) error {
	id := ps[0].session.ID
	var ops []clientv3.Op
	for _, p := range ps {
		ops = append(ops, clientv3.OpGet(p.Key(), clientv3.WithKeysOnly()))
	}
	txn := l.cluster.Client.Txn(ctx)
	if void { // mutant: doubt-without-a-void
		txn = txn.Then(append(ops, clientv3.OpPut(l.cluster.Keys.Void(id), "", clientv3.WithLease(id)))...)
	} else {
		txn = txn.If(l.cluster.Never()).Then(clientv3.OpDelete(l.cluster.Keys.Void(id))).Else(ops...)
	}
	resp, err := l.cluster.Commit(ctx, txn)
	if err != nil {
		return err
	}
	// This process makes no other keys of these names before the positions are settled.
	var found []clientv3.Op
	for i, p := range ps {
		token := int64(p.Grant().Token)
		for _, kv := range resp.Responses[i].GetResponseRange().Kvs {
			if token == 0 || token == kv.CreateRevision {
				found = append(found, deleteCreated(p.Key(), kv.CreateRevision)) // mutant: void-leaves-the-key
			}
		}
	}
	return l.erase(ctx, found...)
}
