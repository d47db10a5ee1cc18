package queue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// removeStray deletes k if no position has it though it is a key of this process: a Txn that the
// client sent twice may write the key again after that was deleted. No call would ever delete
// it, and all would wait behind it.
//
// A position that gets k's name meanwhile takes the key over: its put finds the key, and gives it
// another mod revision. The deletion may arrive after that, so it requires that the mod revision
// is still the create revision. Callers hold mu.
func (l *line) removeStray(k watch.Key) {
	if k.Created <= l.passed || k.Created == l.stray || !l.isStray(k) {
		return
	}
	l.stray = k.Created
	q, key := l.queues, l.follower.Queue()+k.Name
	q.cluster.Tasks.Start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, q.cluster.RequestTimeout)
		defer cancel()
		untouched := clientv3.Compare(clientv3.ModRevision(key), "=", k.Created) // mutant: late-removals-delete-what-was-taken-over
		if err := q.erase(ctx, clientv3.OpTxn([]clientv3.Cmp{untouched}, []clientv3.Op{clientv3.OpDelete(key)}, nil)); err == nil {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stray = 0 // the next look at the queue tries again
	})
}

// isStray reports whether k is a key of a session of this process, and of none of its positions.
func (l *line) isStray(k watch.Key) bool {
	id, number, ok := l.queues.cluster.Keys.ParseName(k.Name)
	return ok && slices.ContainsFunc(l.positions, func(p *Position) bool { return p.session.ID == id }) &&
		!slices.ContainsFunc(l.positions, func(p *Position) bool { return p.session.ID == id && int32(p.number) == number })
}
