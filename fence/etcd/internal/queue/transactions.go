package queue

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
)

// outcome is what an acquire Txn found.
type outcome struct {
	written bool
	void    bool               // not written, and never will be: the void of a later acquisition came first
	first   bool               // written, as the first of the queue
	token   fence.Token        // if written
	owner   *mvccpb.KeyValue   // the first of the queue, nil if there is none
	epochs  []*mvccpb.KeyValue // not written: the epoch key
}

// write puts the key of p if the epoch is still e and the Txn's number is not void, and
// reads the first key of the queue. With try it puts only if the queue is empty. The token
// is the revision of this Txn, never that of a later read (F1). The client sends a Txn
// again after some errors, and the revision of the second one is not the key's create
// revision: so the Txn requires that the key doesn't exist.
func (q *Queues) write(ctx context.Context, p *Position, e keys.Epoch, try bool) (outcome, error) {
	proclaimed := ""
	if p.campaign != nil {
		proclaimed = *p.campaign
	}
	value, err := p.encode(e.Number, proclaimed)
	if err != nil {
		return outcome{}, err
	}
	epochKey := q.cluster.Keys.Epoch()
	conditions := []clientv3.Cmp{
		e.Unchanged(epochKey),
		q.notVoid(p),
		clientv3.Compare(clientv3.CreateRevision(p.key), "=", 0),
	}
	if try {
		// No existing key has create revision 0, so this holds for an empty range only.
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(p.queue).WithPrefix(), "=", 0))
	}
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(conditions...).Then(
		clientv3.OpPut(p.key, value, clientv3.WithLease(p.session.ID)), FirstOf(p.queue),
	).Else(
		clientv3.OpGet(epochKey), FirstOf(p.queue), clientv3.OpGet(p.key, clientv3.WithCountOnly()),
		clientv3.OpGet(q.cluster.Keys.Void(p.session.ID, p.number), clientv3.WithRange(q.endOfVoids(p)), clientv3.WithCountOnly()),
	))
	if err != nil {
		return outcome{}, err
	}
	firsts := resp.Responses[1].GetResponseRange().Kvs
	if !resp.Succeeded {
		if resp.Responses[2].GetResponseRange().Count > 0 {
			return outcome{}, errSentTwice
		}
		o := outcome{
			epochs: resp.Responses[0].GetResponseRange().Kvs,
			void:   resp.Responses[3].GetResponseRange().Count > 0,
		}
		if len(firsts) > 0 {
			o.owner = firsts[0]
		}
		return o, nil
	}
	first := string(firsts[0].Key) == p.key
	return outcome{written: true, first: first, owner: firsts[0], token: fence.Token(resp.Header.Revision)}, nil
}

// FirstOf reads the first key of a queue.
func FirstOf(queue string) clientv3.Op {
	return clientv3.OpGet(queue, clientv3.WithFirstCreate()...)
}

// erase deletes the key that p wrote. A later key of the same name has another create
// revision, and stays.
func (q *Queues) erase(ctx context.Context, p *Position) error {
	_, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.key), "=", int64(p.granted().Token))).
		Then(clientv3.OpDelete(p.key)))
	return err
}

// notVoid is the condition that no void key rules out the Txn with p's number. No existing
// key has create revision 0, so it holds for an empty range only.
func (q *Queues) notVoid(p *Position) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(q.cluster.Keys.Void(p.session.ID, p.number)), "=", 0).WithRange(q.endOfVoids(p))
}

func (q *Queues) endOfVoids(p *Position) string {
	return clientv3.GetPrefixRangeEnd(q.cluster.Keys.Voids(p.session.ID))
}

// void makes sure that p's key doesn't exist and never will, when it isn't known whether
// the Txn that writes it has arrived: of the two Txns, the one that etcd applies second
// sees the effect of the first. A session needs one void key: it rules out all Txns up to
// its own number, and is replaced only by a higher one. It lives under the lease of the
// lock keys: when the lease takes it away, no lock key can be written either.
//
// If a void key as high is there already, the void of a later acquisition came first.
// Then p's key may still be there, and is deleted by its create revision.
func (q *Queues) void(ctx context.Context, p *Position) error {
	key := q.cluster.Keys.Void(p.session.ID, p.number)
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(q.notVoid(p)).Then(
		clientv3.OpPut(key, p.key, clientv3.WithLease(p.session.ID)),
		clientv3.OpDelete(q.cluster.Keys.Voids(p.session.ID), clientv3.WithRange(key)),
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
