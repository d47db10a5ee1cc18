package queue

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// flight is a Txn that puts and deletes keys of several positions. Each of them has its own
// outcome: what ends one caller's ctx doesn't end the Txn that others wait for.
type flight struct {
	sender  *sender
	session *session.Session // of puts
	puts    []*Position
	dels    []*Position

	counted bool // in sender.busy

	// Guarded by sender.mu.
	wanted int // how many of its members still wait for the answer
	cancel context.CancelFunc
}

// runHere runs f for a call that waits for it, until ctx or the session of its position ends.
func (f *flight) runHere(ctx context.Context, s *session.Session) {
	ctx, cancel := context.WithTimeout(ctx, f.sender.queues.cluster.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(s.Context(), cancel)() // mutant: txn-of-a-call-outlasts-its-session
	f.run(ctx)
	f.over()
}

// runInBackground runs f until no call waits for it any more.
func (f *flight) runInBackground(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.sender.queues.cluster.RequestTimeout)
	defer cancel()
	f.begin(cancel)
	f.run(ctx)
	f.over()
}

// begin makes cancel end the Txn when no call waits for it any more.
func (f *flight) begin(cancel context.CancelFunc) {
	f.sender.mu.Lock()
	defer f.sender.mu.Unlock()
	f.cancel = cancel
	if f.wanted == 0 {
		cancel()
	}
}

// over lets the next Txn go.
func (f *flight) over() {
	s := f.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.counted {
		s.busy--
		s.next()
	}
}

// landed takes the puts out of the sender, before they are told their outcome.
func (f *flight) landed() {
	s := f.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range f.puts {
		p.flight = nil
		p.line.sending--
	}
}

// run sends the Txn until it has an outcome, and tells it to the positions.
func (f *flight) run(ctx context.Context) {
	q := f.sender.queues
	if len(f.puts) == 0 {
		f.runDels(ctx)
		return
	}
	txn := func(sent cluster.Mark) (clientv3.Txn, error) { return f.txn(ctx, sent) }
	never := func(*clientv3.TxnResponse) bool { return false }
	resp, epoch, certain, err := q.write(ctx, txn, never)
	if err != nil {
		f.fail(err, certain)
		return
	}
	f.done(resp, epoch)
}

// runDels is run without puts.
func (f *flight) runDels(ctx context.Context) {
	q := f.sender.queues
	if err := q.erase(ctx, deletes(f.dels)...); err != nil { // mutant: release-in-doubt-is-taken-for-done
		f.fail(err, false)
		return
	}
	for _, p := range f.dels {
		p.settle(true)
	}
}

// txn puts the keys of f.puts, if the epoch is still the one of sent and no void rules the
// Txn out; before each it reads the last key of the queue, which is the one directly ahead.
// And it deletes the keys of f.dels.
func (f *flight) txn(ctx context.Context, sent cluster.Mark) (clientv3.Txn, error) {
	q := f.sender.queues
	ops := make([]clientv3.Op, 0, 2*len(f.puts)+len(f.dels))
	for _, p := range f.puts {
		put, err := p.put(sent.Epoch.Number)
		if err != nil {
			return nil, err
		}
		ops = append(ops, clientv3.OpGet(p.line.follower.Queue(), append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())...), put)
	}
	return q.cluster.Client.Txn(ctx).If(q.mayWrite(f.session, sent)...).Then(append(ops, deletes(f.dels)...)...), nil
}

// done takes the answer to the Txn. The token is the key's create revision, never the
// revision of a later read (F1): that of this Txn, or, if the client sent the Txn twice, that
// of the first one, which the put of the second one finds the key to have.
func (f *flight) done(resp *clientv3.TxnResponse, epoch int64) {
	f.landed()
	for i, p := range f.puts {
		token, pred := resp.Header.Revision, int64(0)
		for _, kv := range resp.Responses[2*i].GetResponseRange().Kvs {
			pred = kv.CreateRevision
		}
		if already := resp.Responses[2*i+1].GetResponsePut().PrevKv; already != nil { // mutant: acquire-sent-twice-has-the-second-revision
			token, pred = already.CreateRevision, unknownPred
		}
		p.written(fence.Token(token), epoch, pred)
		f.sender.queues.discard(p)
	}
	for _, p := range f.dels {
		p.settle(true)
	}
}

// unknownPred says that it isn't known which key is directly ahead.
const unknownPred = -1

// fail takes an error of the Txn. certain means that the Txn has changed nothing. If the error may
// be due to one key, and there are others, each is sent again alone.
func (f *flight) fail(err error, certain bool) {
	s, gone, n := f.sender, errors.Is(err, cluster.ErrLeaseGone), len(f.puts)+len(f.dels)
	s.shrink(err, n)
	if cluster.Rejected(err) && !gone && len(f.puts) > 0 && n > 1 {
		s.split(f)
		return
	}
	f.landed()
	for _, p := range f.puts {
		p.unwritten(err, certain)
	}
	if gone {
		f.session.End(fence.LossExpired)
	}
	for _, p := range f.puts {
		s.queues.discard(p)
	}
	for _, p := range f.dels {
		s.queues.cleaner.add(p)
	}
}
