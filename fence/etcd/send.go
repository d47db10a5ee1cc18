package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// Bounds of one Txn, in keys that it writes or deletes. A fourth of them may be written: etcd allows
// 128 operations by default, and a put needs two.
const (
	maxKeys = 100
	minKeys = 2
)

// maxFlights is how many Txns that take what waits are under way at a time.
const maxFlights = 2

// sender writes and deletes lock keys, in the background, so that no call ends what another waits for. A key
// that comes alone goes out at once. Keys that come while Txns are under way wait, and go together in the
// next: so under load many calls share a Txn, which etcd writes to disk once. Two keys of one queue never
// share one: they would have equal create revisions, so equal tokens (F1). The second one goes out at once.
type sender struct {
	locker *Locker

	stuckAfter time.Duration // how long keys wait behind Txns that are under way

	mu      sync.Mutex
	room    int         // how many keys a Txn may have, from maxKeys to minKeys, see shrink
	puts    []*position // at most one of each line
	dels    []*position
	busy    int  // Txns under way, of those that are counted
	waiting bool // a timer will call overtake
}

// put writes the key of p, and tells p the outcome.
func (s *sender) put(p *position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// With MutexKeys a key of "a/b" is in the queue of "a" too.
	if p.line.unanswered() > 1 || s.locker.cluster.Keys.Mutex { // mutant: two-of-a-resource-share-a-txn
		s.launch(&flight{session: p.session, puts: []*position{p}, dels: s.takeDels(s.room - 1)})
		return
	}
	s.puts = append(s.puts, p)
	s.next()
}

// del deletes the key of p and settles p. If the Txn fails, the cleaner tries again.
func (s *sender) del(p *position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dels = append(s.dels, p)
	s.next()
}

// giveUp drops p if its key still waits to be written, and reports whether it did.
func (s *sender) giveUp(p *position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.puts, p)
	if i >= 0 {
		s.puts = slices.Delete(s.puts, i, i+1)
	}
	return i >= 0
}

// next sends what waits, unless enough is under way. Callers hold mu.
func (s *sender) next() {
	for s.busy < maxFlights && len(s.puts)+len(s.dels) > 0 {
		s.launchWaiting()
	}
	if !s.waiting && len(s.puts)+len(s.dels) > 0 {
		s.waiting = true
		time.AfterFunc(s.stuckAfter, s.overtake) // mutant: stuck-txns-hold-up-all-others
	}
}

// overtake sends what waits, though others are under way: they may be stuck.
func (s *sender) overtake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	if len(s.puts)+len(s.dels) > 0 {
		s.launchWaiting()
	}
	s.next()
}

// launchWaiting launches a Txn of what waits. Callers hold mu.
func (s *sender) launchWaiting() {
	f := &flight{counted: true}
	f.session, f.puts = s.takePuts()
	f.dels = s.takeDels(s.room - len(f.puts))
	s.launch(f)
}

// takePuts takes puts of one session. Callers hold mu.
func (s *sender) takePuts() (*session.Session, []*position) {
	if len(s.puts) == 0 {
		return nil, nil
	}
	first, n := s.puts[0].session, 0
	for n < min(len(s.puts), max(1, s.room/4)) && s.puts[n].session == first {
		n++
	}
	taken := s.puts[:n:n]
	s.puts = s.puts[n:]
	return first, taken
}

// takeDels takes up to n keys to delete. Each takes along the keys of this process ahead of it that
// are over, also if an earlier Txn is about to delete them: a grant that relied on their end must
// not lose its key before they lose theirs. If they are too many, the cleaner deletes them in order.
// Callers hold mu.
func (s *sender) takeDels(n int) []*position {
	var taken []*position
	for len(s.dels) > 0 {
		p := s.dels[0]
		ahead := append(p.line.overBefore(p), p) // mutant: key-goes-before-the-one-ahead
		if len(ahead) > n && len(taken) == 0 {
			s.dels = s.dels[1:]
			for _, e := range ahead {
				s.locker.cleaner.add(e)
			}
			continue
		}
		if len(taken)+len(ahead) > n {
			break
		}
		s.dels = s.dels[1:]
		for _, e := range ahead {
			if !slices.Contains(taken, e) {
				taken = append(taken, e)
			}
		}
	}
	return taken
}

// shrink takes the error of a Txn of n keys. If that was beyond a limit of etcd's, which nothing
// tells beforehand, later Txns have half as many. It reports whether they can.
func (s *sender) shrink(err error, n int) bool {
	if n <= minKeys || !cluster.TooBig(err) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= s.room {
		s.room = max(minKeys, n/2)
	}
	return true
}

// roomNow is how many keys a Txn may have.
func (s *sender) roomNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room
}

// launch runs f in a goroutine. Callers hold mu.
func (s *sender) launch(f *flight) {
	f.sender = s
	if f.counted {
		s.busy++
	}
	s.locker.cluster.Tasks.Start(f.run)
}

// flight is a Txn that puts and deletes keys of several positions. Each of them has its own
// outcome.
type flight struct {
	sender  *sender
	session *session.Session // of puts
	puts    []*position
	dels    []*position
	counted bool // in sender.busy
}

// run sends the Txn, tells the outcome to the positions, and lets the next Txn go.
func (f *flight) run(ctx context.Context) {
	s := f.sender
	ctx, cancel := context.WithTimeout(ctx, s.locker.cluster.RequestTimeout)
	defer cancel()
	var resp *clientv3.TxnResponse
	var epoch int64
	var certain bool
	var err error
	if len(f.puts) > 0 {
		txn := func(sent cluster.Mark) (clientv3.Txn, error) { return f.txn(ctx, sent) }
		resp, epoch, certain, err = s.locker.write(ctx, txn, nil)
	} else {
		err = s.locker.erase(ctx, deletes(f.dels)...) // mutant: release-in-doubt-is-taken-for-done
	}
	if err != nil {
		f.fail(err, certain)
	} else {
		f.done(resp, epoch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.counted {
		s.busy--
		s.next()
	}
}

// txn puts the keys of f.puts, if the epoch is still the one of sent and no void rules the
// Txn out; before each it reads the last key of the queue, which is the one directly ahead.
// And it deletes the keys of f.dels.
func (f *flight) txn(ctx context.Context, sent cluster.Mark) (clientv3.Txn, error) {
	l := f.sender.locker
	ops := make([]clientv3.Op, 0, 2*len(f.puts)+len(f.dels))
	for _, p := range f.puts {
		put, err := p.put(sent.Epoch.Number)
		if err != nil {
			return nil, err
		}
		ops = append(ops, clientv3.OpGet(p.line.follower.Queue, append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())...), put)
	}
	return l.cluster.Client.Txn(ctx).If(l.mayWrite(f.session, sent)...).Then(append(ops, deletes(f.dels)...)...), nil
}

// done takes the answer to the Txn. The token is the key's create revision, never the
// revision of a later read (F1): that of this Txn, or, if the client sent the Txn twice, that
// of the first one, which the put of the second one finds the key to have.
func (f *flight) done(resp *clientv3.TxnResponse, epoch int64) {
	for i, p := range f.puts {
		token, pred := resp.Header.Revision, int64(0)
		for _, kv := range resp.Responses[2*i].GetResponseRange().Kvs {
			pred = kv.CreateRevision
		}
		if already := resp.Responses[2*i+1].GetResponsePut().PrevKv; already != nil { // mutant: acquire-sent-twice-has-the-second-revision
			token, pred = already.CreateRevision, unknownPred
		}
		p.written(fence.Token(token), epoch, pred)
		f.sender.locker.discard(p)
	}
	for _, p := range f.dels {
		p.settle(removed)
	}
}

// unknownPred says that it isn't known which key is directly ahead.
const unknownPred = -1

// fail takes an error of the Txn. certain means that the Txn has changed nothing. If the error may
// be due to one key, and there are others, each is sent again alone.
func (f *flight) fail(err error, certain bool) {
	s, n := f.sender, len(f.puts)+len(f.dels)
	s.shrink(err, n)
	if cluster.Rejected(err) && !errors.Is(err, cluster.ErrLeaseGone) && n > 1 {
		s.mu.Lock()
		for _, p := range f.puts {
			s.launch(&flight{session: f.session, puts: []*position{p}})
		}
		s.mu.Unlock()
	} else {
		for _, p := range f.puts {
			p.unwritten(err, certain)
			s.locker.discard(p)
		}
	}
	for _, p := range f.dels {
		s.locker.cleaner.add(p)
	}
}

// put is the operation that writes the key of p. It returns the key that it replaces: that is
// p's own, if the client sends the Txn twice.
func (p *position) put(epoch int64) (clientv3.Op, error) {
	proclaimed := ""
	if p.campaign != nil {
		proclaimed = *p.campaign
	}
	value, err := p.encode(epoch, proclaimed)
	return clientv3.OpPut(p.Key(), value, clientv3.WithLease(p.session.ID), clientv3.WithPrevKV()), err // mutant: acquire-without-a-lease
}

// mayWrite are the conditions of every Txn of the session that writes lock keys, sent at the
// mark: the epoch is still that of the mark, which the grants name, and no void rules the Txn out.
func (l *Locker) mayWrite(s *session.Session, sent cluster.Mark) []clientv3.Cmp {
	return []clientv3.Cmp{sent.Epoch.Unchanged(l.cluster.Keys.Epoch()), l.notVoid(s, sent)} // mutant: acquire-in-an-epoch-that-is-over
}

// notVoid is the condition that no void rules out a Txn of the session that is sent at the
// mark: a void is written at a revision above those that were seen when the Txns that it
// rules out were sent.
func (l *Locker) notVoid(s *session.Session, sent cluster.Mark) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.cluster.Keys.Void(s.ID)), "<", sent.Revision()+1) // mutant: first-void-of-a-session-is-the-only-one
}

// write commits a Txn that writes lock keys. When its conditions fail it reads the epoch and
// commits the Txn anew, unless final says of the answer that the conditions failed for
// another reason. It returns the epoch of the Txn; and if there is an error, whether the Txn
// has certainly changed nothing.
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

// erase runs ops, each of which is a Txn that deletes a key. A Txn within another one costs
// etcd more, so one that is alone isn't put into another.
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

// deletes are the operations that delete the keys of positions.
func deletes(ps []*position) []clientv3.Op {
	ops := make([]clientv3.Op, len(ps))
	for i, p := range ps {
		ops[i] = deleteCreated(p.Key(), int64(p.Grant().Token))
	}
	return ops
}

// deleteCreated deletes a key with this create revision. The request may arrive late, when a
// later position has a key of the same name: that has another create revision, and stays.
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
