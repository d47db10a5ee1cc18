package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
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
func (l *Locker) write(ctx context.Context, p *place, e epoch, try bool) (outcome, error) {
	proclaimed := ""
	if p.campaign != nil {
		proclaimed = *p.campaign
	}
	value, err := p.encode(e.number, proclaimed)
	if err != nil {
		return outcome{}, err
	}
	epochKey := l.keys.epoch()
	conditions := []clientv3.Cmp{
		e.unchanged(epochKey),
		l.notVoid(p),
		clientv3.Compare(clientv3.CreateRevision(p.key), "=", 0),
	}
	if try {
		// No key of the queue has create revision 0: true of an empty range alone.
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(p.queue).WithPrefix(), "=", 0))
	}
	resp, err := l.commit(ctx, l.client.Txn(ctx).If(conditions...).Then(
		clientv3.OpPut(p.key, value, clientv3.WithLease(p.session.id)), firstOf(p.queue),
	).Else(
		clientv3.OpGet(epochKey), firstOf(p.queue), clientv3.OpGet(p.key, clientv3.WithCountOnly()),
		clientv3.OpGet(l.keys.void(p.session.id, p.number), clientv3.WithRange(l.endOfVoids(p)), clientv3.WithCountOnly()),
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

func firstOf(queue string) clientv3.Op {
	return clientv3.OpGet(queue, clientv3.WithFirstCreate()...)
}

// erase deletes the key of p, if it is the one that p wrote: a key of the same
// name that somebody made later has another create revision.
func (l *Locker) erase(ctx context.Context, p *place) error {
	_, err := l.commit(ctx, l.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.key), "=", int64(p.granted().Token))).
		Then(clientv3.OpDelete(p.key)))
	return err
}

// notVoid is the condition that no void key rules out p's Txn of its number. No key
// has create revision 0: so it is true of an empty range alone.
func (l *Locker) notVoid(p *place) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.keys.void(p.session.id, p.number)), "=", 0).WithRange(l.endOfVoids(p))
}

func (l *Locker) endOfVoids(p *place) string {
	return clientv3.GetPrefixRangeEnd(l.keys.voids(p.session.id))
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
func (l *Locker) void(ctx context.Context, p *place) error {
	key := l.keys.void(p.session.id, p.number)
	resp, err := l.commit(ctx, l.client.Txn(ctx).If(l.notVoid(p)).Then(
		clientv3.OpPut(key, p.key, clientv3.WithLease(p.session.id)),
		clientv3.OpDelete(l.keys.voids(p.session.id), clientv3.WithRange(key)),
		clientv3.OpDelete(p.key),
	).Else(clientv3.OpGet(p.key)))
	if err != nil || resp.Succeeded {
		return err
	}
	return l.eraseFound(ctx, p, resp.Responses[0].GetResponseRange().Kvs)
}

// withdraw deletes p's key, when etcd has answered that there is no space: the Txn
// that writes it can't come late any more, but etcd looks at its quota before a
// Txn and complains after it, so the key may be there. A void key would need space.
func (l *Locker) withdraw(ctx context.Context, p *place) error {
	// As in askWhereItStands: it goes through raft because it could delete.
	never := clientv3.Compare(clientv3.CreateRevision(p.key), "<", 0)
	resp, err := l.commit(ctx, l.client.Txn(ctx).If(never).Then(clientv3.OpDelete(p.key)).Else(clientv3.OpGet(p.key)))
	if err != nil {
		return err
	}
	return l.eraseFound(ctx, p, resp.Responses[0].GetResponseRange().Kvs)
}

// eraseFound deletes the key of p that an answer shows. It is p's: this process
// makes no other of that name before p is settled. But this request may arrive
// when it has (Config.MutexKeys), so it deletes by create revision.
func (l *Locker) eraseFound(ctx context.Context, p *place, kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 {
		return nil
	}
	p.mu.Lock()
	p.grant.Token = fence.Token(kvs[0].CreateRevision)
	p.mu.Unlock()
	return l.erase(ctx, p)
}

// commit runs a Txn that writes, and holds its answer against all earlier ones.
func (l *Locker) commit(ctx context.Context, txn clientv3.Txn) (*clientv3.TxnResponse, error) {
	if clientClosed(l.client) {
		return nil, errClientClosed
	}
	sent := l.marks.sending()
	resp, err := txn.Commit()
	if err != nil {
		return nil, err
	}
	if err := l.marks.check(sent, resp.Header); err != nil {
		l.wentBack(err)
		return nil, err
	}
	return resp, nil
}
