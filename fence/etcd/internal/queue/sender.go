package queue

import (
	"context"
	"slices"
	"sync"
	"time"

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

// sender writes and deletes lock keys. A key that comes alone goes out at once. Keys that
// come while Txns are under way wait, and go together in the next: so under load many calls
// share a Txn, which etcd writes to disk once. Two keys of one queue never share one: they
// would have equal create revisions, so equal tokens (F1). The second one goes out at once.
//
// A Txn for one call alone runs in that call, which spares two switches between goroutines.
// Others run in the background, so that no call ends what another waits for.
type sender struct {
	queues *Queues

	stuckAfter time.Duration // how long keys wait behind Txns that are under way

	mu      sync.Mutex
	room    int         // how many keys a Txn may have, from maxKeys to minKeys, see shrink
	puts    []*Position // at most one of each line
	dels    []*Position
	busy    int  // Txns under way, of those that are counted
	waiting bool // a timer will call overtake
}

// put writes the key of p, and tells p the outcome. If the Txn is for p alone put returns when it
// has ended, as it does when ctx ends; else at once, and the Txn is sent in the background.
func (s *sender) put(ctx context.Context, p *Position) {
	s.mu.Lock()
	p.line.sending++
	if p.line.sending > 1 || s.alone() { // mutant: two-of-a-resource-share-a-txn
		s.launch(&flight{session: p.session, puts: []*Position{p}, dels: s.takeDels(s.room - 1)})
		s.mu.Unlock()
		return
	}
	if p.line.isAlone(p) && s.idle() {
		f := s.prepare(&flight{session: p.session, puts: []*Position{p}, counted: true})
		s.mu.Unlock()
		f.runHere(ctx, p.session)
		return
	}
	s.puts = append(s.puts, p)
	s.next()
	s.mu.Unlock()
}

// idle reports whether a Txn that comes now can be sent at once: nothing waits, and fewer than
// maxFlights are under way. Callers hold mu.
func (s *sender) idle() bool { return s.busy < maxFlights && len(s.puts)+len(s.dels) == 0 }

// alone reports whether each key has to be written by a Txn of its own. With MutexKeys a key of
// "a/b" is in the queue of "a" too.
func (s *sender) alone() bool { return s.queues.cluster.Keys.Mutex }

// del deletes the key of p and settles p. If wait is true and the Txn is for p alone, del returns
// when the Txn has ended; else at once. If the Txn fails, the cleaner tries again.
func (s *sender) del(ctx context.Context, p *Position, wait bool) {
	s.mu.Lock()
	if wait && ctx.Err() == nil && s.idle() && len(p.line.leftAhead(p)) == 0 {
		f := s.prepare(&flight{dels: []*Position{p}, counted: true})
		s.mu.Unlock()
		f.runHere(ctx, p.session)
		return
	}
	s.dels = append(s.dels, p)
	s.next()
	s.mu.Unlock()
}

// giveUp says that the call of p no longer waits for the answer. The Txn ends once none of its
// calls does. giveUp reports whether the key of p was never sent, and now won't be.
func (s *sender) giveUp(p *Position) (unsent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.puts, p); i >= 0 {
		s.puts = slices.Delete(s.puts, i, i+1)
		p.line.sending--
		return true
	}
	if f := p.flight; f != nil {
		p.flight = nil
		if f.wanted--; f.wanted == 0 {
			f.cancel()
		}
	}
	return false
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
func (s *sender) takePuts() (*session.Session, []*Position) {
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
func (s *sender) takeDels(n int) []*Position {
	var taken []*Position
	for len(s.dels) > 0 {
		p := s.dels[0]
		ahead := append(p.line.leftAhead(p), p) // mutant: key-goes-before-the-one-ahead
		if len(ahead) > n && len(taken) == 0 {
			s.dels = s.dels[1:]
			for _, e := range ahead {
				s.queues.cleaner.add(e)
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

// split sends each put of f again alone. The cleaner deletes what f deletes, in that order.
func (s *sender) split(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range f.puts {
		s.launch(&flight{session: f.session, puts: []*Position{p}})
	}
	for _, p := range f.dels {
		s.queues.cleaner.add(p)
	}
}

// prepare makes f ready to run. Callers hold mu.
func (s *sender) prepare(f *flight) *flight {
	f.sender, f.wanted, f.cancel = s, len(f.puts)+len(f.dels), func() {}
	for _, p := range f.puts {
		p.flight = f
	}
	if f.counted {
		s.busy++
	}
	return f
}

// launch runs f in a goroutine. Callers hold mu.
func (s *sender) launch(f *flight) {
	s.prepare(f)
	s.queues.cluster.Tasks.Start(f.runInBackground)
}
