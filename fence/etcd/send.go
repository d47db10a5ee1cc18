package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// Bounds of one Txn: of all keys, and of those that it writes. etcd allows 128 operations by default, and a put
// needs two.
const (
	maxKeys = 100
	maxPuts = maxKeys / 4
)

const maxFlights = 2

// sender writes and deletes lock keys in the background, so that no call ends what another waits for. Keys that
// come while Txns are under way share the next one, but never two keys of one queue, which would have equal tokens.
type sender struct {
	locker *Locker

	stuckAfter time.Duration

	mu      sync.Mutex
	puts    []*position
	dels    []*position
	busy    int
	waiting bool

	left     []*position
	most     int // positions in one Txn of clean: fewer after an error, to find the one that fails
	cleaning bool
}

func (s *sender) put(p *position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// With MutexKeys a key of "a/b" is in the queue of "a" too.
	if p.line.unanswered() > 1 || s.locker.cluster.Keys.Mutex { // mutant: two-of-a-resource-share-a-txn
		s.launch(&flight{puts: []*position{p}, dels: s.takeDels(maxKeys - 1)})
		return
	}
	s.puts = append(s.puts, p)
	s.next()
}

func (s *sender) del(p *position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dels = append(s.dels, p)
	s.next()
}

func (s *sender) giveUp(p *position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.puts, p)
	if i >= 0 {
		s.puts = slices.Delete(s.puts, i, i+1)
	}
	return i >= 0
}

func (s *sender) next() {
	for s.busy < maxFlights && len(s.puts)+len(s.dels) > 0 {
		s.launchWaiting()
	}
	if !s.waiting && len(s.puts)+len(s.dels) > 0 {
		s.waiting = true
		time.AfterFunc(s.stuckAfter, s.overtake) // mutant: stuck-txns-hold-up-all-others
	}
}

func (s *sender) overtake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	if len(s.puts)+len(s.dels) > 0 {
		s.launchWaiting()
	}
	s.next()
}

func (s *sender) launchWaiting() {
	f := &flight{counted: true, puts: s.takePuts()}
	f.dels = s.takeDels(maxKeys - len(f.puts))
	s.busy++
	s.launch(f)
}

func (s *sender) takePuts() []*position {
	n := 0
	for n < min(len(s.puts), maxPuts) && s.puts[n].Session == s.puts[0].Session {
		n++
	}
	taken := s.puts[:n:n]
	s.puts = s.puts[n:]
	return taken
}

// takeDels takes along the keys ahead that are over, even if an earlier Txn is about to delete them: a grant that
// relied on their end must not lose its key first. If they are too many, clean deletes them in order. Callers hold
// mu.
func (s *sender) takeDels(n int) []*position {
	var taken []*position
	for len(s.dels) > 0 {
		p := s.dels[0]
		if how, _ := p.state(); how >= removed { // a put may use its name now, and etcd refuses a key twice
			s.dels = s.dels[1:]
			continue
		}
		ahead := append(p.line.overBefore(p), p) // mutant: key-goes-before-the-one-ahead
		if len(ahead) > n && len(taken) == 0 {
			s.dels = s.dels[1:]
			s.addLeft(ahead...)
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

func (s *sender) launch(f *flight) {
	f.sender = s
	s.locker.cluster.Tasks.Start(f.run)
}

type flight struct {
	sender  *sender
	puts    []*position
	dels    []*position
	counted bool
}

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
		resp, epoch, certain, err = s.locker.write(ctx, f.puts[0].Session, txn, nil)
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
	return l.cluster.Client.Txn(ctx).If(l.mayWrite(f.puts[0].Session, sent)...).Then(append(ops, deletes(f.dels)...)...), nil
}

// done takes the create revision of the key as the token. If the client sent the Txn twice, that is the
// revision of the first one, which the second put reports.
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

const unknownPred = -1

func (f *flight) fail(err error, certain bool) {
	s := f.sender
	again := (cluster.TooBig(err) || errors.Is(err, rpctypes.ErrPermissionDenied)) && len(f.puts)+len(f.dels) > 1
	for _, p := range f.puts {
		if again {
			s.launch(&flight{puts: []*position{p}})
			continue
		}
		p.unwritten(err, certain)
		s.locker.discard(p)
	}
	s.remove(f.dels...)
}

func (s *sender) remove(ps ...*position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLeft(ps...)
}

func (s *sender) addLeft(ps ...*position) {
	s.left = append(s.left, ps...)
	if !s.cleaning && len(s.left) > 0 {
		s.cleaning = true
		s.locker.cluster.Tasks.Start(s.clean)
	}
}

// clean removes what is left, one Txn at a time: there may be thousands of keys, which must not delay renewals. It
// repeats a Txn until it succeeds, the session is over, or the client is closed.
func (s *sender) clean(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		batch, doubt := s.takeLeft()
		if len(batch) == 0 {
			return
		}
		try, cancel := context.WithTimeout(ctx, s.locker.cluster.RequestTimeout)
		err := s.locker.withdraw(try, doubt, batch...)
		cancel()
		how := removed
		if errors.Is(err, cluster.ErrClientClosed) {
			how, err = sessionOver, nil
		}
		if err == nil {
			failures, s.most = 0, min(2*s.most, maxKeys)
			for _, p := range batch {
				p.settle(how)
			}
			continue
		}
		s.most = max(len(batch)/2, 1)
		s.putBack(batch)
		if len(batch) == 1 || !cluster.TooBig(err) {
			s.notCleaned(batch, err)
			session.Pause(ctx, failures)
			failures++
		}
	}
}

// takeLeft returns positions of one session, all in doubt or none, and none before an earlier one of its line (see
// takeDels).
func (s *sender) takeLeft() (batch []*position, doubt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []*position
	for _, p := range s.left {
		how, left := p.state()
		inDoubt := left == leftDoubt
		switch {
		case how >= removed: // its session is over, or it was added twice; mutant: what-was-removed-is-removed-again
		case len(batch) == 0:
			batch, doubt = append(batch, p), inDoubt
		case len(batch) < s.most && p.Session == batch[0].Session && inDoubt == doubt && !inLines(rest, p):
			batch = append(batch, p)
		default:
			rest = append(rest, p)
		}
	}
	s.left, s.cleaning = rest, len(batch) > 0
	return batch, doubt
}

func (s *sender) putBack(batch []*position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var others, behind []*position
	for _, p := range s.left {
		if inLines(batch, p) {
			behind = append(behind, p)
		} else {
			others = append(others, p)
		}
	}
	s.left = slices.Concat(others, batch, behind)
}

func inLines(ps []*position, p *position) bool {
	return slices.ContainsFunc(ps, func(other *position) bool { return other.line == p.line })
}

// notCleaned ends a session that nothing else needs, so that no renewal keeps the keys alive.
func (s *sender) notCleaned(batch []*position, err error) {
	under := batch[0].Session
	if errors.Is(err, cluster.ErrLeaseGone) {
		under.End(fence.LossExpired)
	}
	under.EndIfUnneeded() // mutant: what-is-in-doubt-is-kept-alive
	s.locker.cluster.Logger.Warn("lock keys could not be removed yet", "keys", len(batch), "first", batch[0].line.resource, "error", err)
}
