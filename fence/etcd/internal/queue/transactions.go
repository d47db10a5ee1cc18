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
	void    bool               // not written, nor will be: a later acquisition's void overtook it
	first   bool               // written, and nobody is ahead
	token   fence.Token        // if written
	owner   *mvccpb.KeyValue   // the first of the queue, nil if there is none
	epochs  []*mvccpb.KeyValue // not written: the epoch key
}

// write puts the key of p if the epoch is still e and the Txn's number was not made
// void, and reads who is first. With try it puts only if the queue is empty. The
// token is the revision of this very Txn, never that of a later read (F1). The
// client sends a Txn again after some errors, and the second one's revision
// would not be the key's create revision: so it requires that there is no key.
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
		// No key of the queue has create revision 0: true of an empty range alone.
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

// erase deletes the key of p, if it is the one that p wrote: a key of the same
// name that somebody made later has another create revision.
func (q *Queues) erase(ctx context.Context, p *Position) error {
	_, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.key), "=", int64(p.granted().Token))).
		Then(clientv3.OpDelete(p.key)))
	return err
}

// notVoid is the condition that no void key rules out p's Txn of its number. No key
// has create revision 0: so it is true of an empty range alone.
func (q *Queues) notVoid(p *Position) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(q.cluster.Keys.Void(p.session.ID, p.number)), "=", 0).WithRange(q.endOfVoids(p))
}

func (q *Queues) endOfVoids(p *Position) string {
	return clientv3.GetPrefixRangeEnd(q.cluster.Keys.Voids(p.session.ID))
}

// void makes sure that p's key isn't there and never will be, when it isn't known
// whether the Txn that writes it arrived: whichever of the two is second finds
// what the first did. A session needs one void key: it rules out all its Txns of a
// number up to its own, and gives way to a higher one alone. It lives under the
// same lease as the locks, so that when it goes, none of them can be written any
// more either.
//
// Where a void key as high is there already, this Txn comes late: a later
// acquisition's void overtook it, and p's key may be there.
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

// withdraw deletes p's key, when etcd has answered that there is no space: the Txn
// that writes it can't come late any more, but etcd looks at its quota before a
// Txn and complains after it, so the key may be there. A void key would need space.
func (q *Queues) withdraw(ctx context.Context, p *Position) error {
	// As in cluster.CheckNow: it goes through raft because it could delete.
	never := clientv3.Compare(clientv3.CreateRevision(p.key), "<", 0)
	resp, err := q.cluster.Commit(ctx, q.cluster.Client.Txn(ctx).If(never).Then(clientv3.OpDelete(p.key)).Else(clientv3.OpGet(p.key)))
	if err != nil {
		return err
	}
	return q.eraseFound(ctx, p, resp.Responses[0].GetResponseRange().Kvs)
}

// eraseFound deletes the key of p that an answer shows. It is p's: this process
// makes no other of that name before p is settled. But this request may arrive
// when it has (Config.MutexKeys), so it deletes by create revision.
func (q *Queues) eraseFound(ctx context.Context, p *Position, kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 {
		return nil
	}
	p.mu.Lock()
	p.grant.Token = fence.Token(kvs[0].CreateRevision)
	p.mu.Unlock()
	return q.erase(ctx, p)
}
