package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// put also asks for the key that it replaces: p's own, if the client sends the Txn twice.
func (p *position) put(epoch int64) (clientv3.Op, error) {
	proclaimed := ""
	if p.campaign != nil {
		proclaimed = *p.campaign
	}
	value, err := p.encode(epoch, proclaimed)
	return clientv3.OpPut(p.Key(), value, clientv3.WithLease(p.Session.ID), clientv3.WithPrevKV()), err // mutant: acquire-without-a-lease
}

// mayWrite requires that the epoch is that of the mark, which the grants name, and that no void rules the Txn out.
func (l *Locker) mayWrite(s *session.Session, sent cluster.Mark) []clientv3.Cmp {
	return []clientv3.Cmp{sent.Epoch.Unchanged(l.cluster.Keys.Epoch()), l.notVoid(s, sent)} // mutant: acquire-in-an-epoch-that-is-over
}

// notVoid holds unless a void was written later: its revision is above those seen when the Txns that it rules out
// were sent.
func (l *Locker) notVoid(s *session.Session, sent cluster.Mark) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.cluster.Keys.Void(s.ID)), "<", sent.Revision()+1) // mutant: first-void-of-a-session-is-the-only-one
}

// write tries again in another epoch or after a void, unless final says that the conditions failed otherwise. After a certain error
// nothing was changed. It is ErrLeaseGone if the epoch was raised since the session began, which ends that.
func (l *Locker) write(ctx context.Context, s *session.Session, txn func(cluster.Mark) (clientv3.Txn, error), final func(*clientv3.TxnResponse) bool) (resp *clientv3.TxnResponse, epoch int64, certain bool, err error) {
	for {
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
		if s.Context().Err() != nil {
			return nil, 0, true, cluster.ErrLeaseGone
		}
	}
}

// erase doesn't nest a single Txn, which would cost etcd more.
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

// deleteCreated requires this create revision, to spare a later position's key of the same name.
func deleteCreated(key string, revision int64) clientv3.Op {
	created := clientv3.Compare(clientv3.CreateRevision(key), "=", revision)
	return clientv3.OpTxn([]clientv3.Cmp{created}, []clientv3.Op{clientv3.OpDelete(key)}, nil) // mutant: release-by-name
}

// withdraw deletes the keys of ps, positions of one session.
//
// With void, the Txns that write them may be under way, and write nothing after the void: whichever etcd applies
// second sees the effect of the other. Each void rules out all earlier Txns, so a late one does no harm. The void
// key lives under the lease of the lock keys. Without void, etcd has answered; if it was out of space it may have
// written the key all the same, and a void key would need space.
func (l *Locker) withdraw(ctx context.Context, void bool, ps ...*position) error {
	id := ps[0].Session.ID
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
