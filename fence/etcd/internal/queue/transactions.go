package queue

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// outcome is what an acquire Txn found.
type outcome struct {
	written bool
	first   bool             // written, as the first of the queue
	token   fence.Token      // if written
	owner   *mvccpb.KeyValue // the first of the queue, if the Txn read it; nil if there is none
}

// write puts the key of p, if the epoch is still the one of sent and no void rules the Txn
// out, and reads the first key of the queue. With try it puts only if the queue is empty.
// The token is the key's create revision, never the revision of a later read (F1): that of
// this Txn, or, if the client sent the Txn twice, that of the first one, which the put then
// finds the key to have.
func (q *Queues) write(ctx context.Context, p *Position, sent cluster.Mark, try bool) (outcome, error) {
	proclaimed := ""
	if p.campaign != nil {
		proclaimed = *p.campaign
	}
	value, err := p.encode(sent.Epoch.Number, proclaimed)
	if err != nil {
		return outcome{}, err
	}
	conditions := []clientv3.Cmp{sent.Epoch.Unchanged(q.cluster.Keys.Epoch()), q.notVoid(p.session, sent)}
	put := clientv3.OpPut(p.key, value, clientv3.WithLease(p.session.ID), clientv3.WithPrevKV())
	txn := q.cluster.Client.Txn(ctx).If(conditions...).Then(put, FirstOf(p.queue))
	if try {
		// No existing key has create revision 0, so this holds for an empty range only.
		empty := clientv3.Compare(clientv3.CreateRevision(p.queue).WithPrefix(), "=", 0)
		txn = q.cluster.Client.Txn(ctx).If(append(conditions, empty)...).Then(put, FirstOf(p.queue)).Else(FirstOf(p.queue))
	}
	resp, err := q.cluster.Commit(ctx, txn)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{written: resp.Succeeded, token: fence.Token(resp.Header.Revision)}
	if o.written {
		if already := resp.Responses[0].GetResponsePut().PrevKv; already != nil {
			o.token = fence.Token(already.CreateRevision)
		}
		resp.Responses = resp.Responses[1:]
	}
	if len(resp.Responses) > 0 {
		for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
			o.owner, o.first = kv, string(kv.Key) == p.key
		}
	}
	if o.first && !o.written { // the queue was not empty because the Txn was sent twice
		o.written, o.token = true, fence.Token(o.owner.CreateRevision)
	}
	return o, nil
}

// FirstOf reads the first key of a queue.
func FirstOf(queue string) clientv3.Op {
	return clientv3.OpGet(queue, clientv3.WithFirstCreate()...)
}

// erase deletes the key that p wrote. With MutexKeys a later key of the session has the
// same name; it has another create revision, and stays. Otherwise no other key ever has it.
func (q *Queues) erase(ctx context.Context, p *Position) error {
	txn := q.cluster.Client.Txn(ctx)
	if q.cluster.Keys.Mutex {
		txn = txn.If(clientv3.Compare(clientv3.CreateRevision(p.key), "=", int64(p.granted().Token)))
	}
	_, err := q.cluster.Commit(ctx, txn.Then(clientv3.OpDelete(p.key)))
	return err
}

// notVoid is the condition that no void rules out a Txn of the session that is sent at the
// mark: a void is written at a revision above those that were seen when the Txns that it
// rules out were sent.
func (q *Queues) notVoid(s *session.Session, sent cluster.Mark) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(q.cluster.Keys.Void(s.ID)), "<", sent.Revision()+1)
}

// void makes sure that p's key doesn't exist and never will, when it isn't known whether
// the Txn that writes it has arrived: of the two Txns, the one that etcd applies second
// sees the effect of the first. A session needs one void key: each void writes it again, and
// rules out all Txns that were sent before. It lives under the lease of the lock keys: when
// the lease takes it away, no lock key can be written either.
//
// If the void key was written meanwhile, that void rules out p's Txn too. Then p's key may
// still be there, and is deleted by its create revision.
func (q *Queues) void(ctx context.Context, p *Position) error {
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(q.notVoid(p.session, q.cluster.Sending())).Then(
		clientv3.OpPut(q.cluster.Keys.Void(p.session.ID), "", clientv3.WithLease(p.session.ID)),
		clientv3.OpDelete(p.key),
	).Else(clientv3.OpGet(p.key)))
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
	never := clientv3.Compare(clientv3.CreateRevision(p.key), "<", 0)
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(never).Then(clientv3.OpDelete(p.key)).Else(clientv3.OpGet(p.key)))
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
	p.mu.Lock()
	p.grant.Token = fence.Token(kvs[0].CreateRevision)
	p.mu.Unlock()
	return q.erase(ctx, p)
}
