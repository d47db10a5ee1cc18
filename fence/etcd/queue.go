package etcd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
	lifecycle "github.com/fencekit/fencekit/fence/internal/session"
)

// line is what this process has in the queue of one resource: its positions, and calls that wait for one.
type line struct {
	locker   *Locker
	resource string
	follower watch.Follower
	users    int32 // calls and unsettled positions; guarded by Locker.mu

	mu        sync.Mutex
	session   *session.Session
	places    int32
	watched   bool
	denied    bool
	waiting   []chan struct{}
	positions []*position // unsettled ones by token, those without one last
	passed    int64       // highest token that was settled with no other process's key ahead
	stray     int64       // create revision of the latest removed stray
	soon      bool
}

func (l *Locker) enter(resource string) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lines[resource]
	if ln == nil {
		ln = &line{locker: l, resource: resource}
		ln.follower.Queue, ln.follower.Listener = l.cluster.Keys.Queue(resource), ln
		l.lines[resource] = ln
	}
	ln.users++
	return ln
}

func (ln *line) leave() {
	l := ln.locker
	l.mu.Lock()
	ln.users--
	over := ln.users == 0
	if over {
		delete(l.lines, ln.resource)
	}
	l.mu.Unlock()
	if over {
		l.watcher.Remove(&ln.follower)
	}
}

func (l *Locker) sessionEnded(s *session.Session, reason fence.LossReason) {
	l.mu.Lock()
	lines := slices.Collect(maps.Values(l.lines))
	l.mu.Unlock()
	for _, ln := range lines {
		ln.mu.Lock()
		positions := slices.Clone(ln.positions)
		ln.mu.Unlock()
		for _, p := range positions {
			if p.Session == s {
				p.sessionEnded(reason)
			}
		}
	}
}

func (ln *line) add(p *position) {
	i := len(ln.positions)
	if p.token != 0 {
		i, _ = slices.BinarySearchFunc(ln.positions, int64(p.token), (*position).compare)
	}
	ln.positions = slices.Insert(ln.positions, i, p)
}

// renew forgets what is known of the queue, since a restored etcd uses revisions again. Callers hold mu.
func (ln *line) renew(s *session.Session) {
	if ln.session == s || s.Remaining() == 0 {
		return
	}
	if ln.session != nil {
		ln.locker.watcher.Forget(&ln.follower)
	}
	ln.session, ln.passed, ln.stray = s, 0, 0
}

// freeNumber reuses numbers to keep names few: a read of a queue goes through all names that etcd has not
// compacted. Callers hold mu.
func (ln *line) freeNumber(s *session.Session) int16 {
	n := int16(0)
	for slices.ContainsFunc(ln.positions, func(p *position) bool { return p.Session == s && p.number == n }) {
		n++
	}
	return n
}

func (ln *line) unanswered() (n int) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for _, p := range ln.positions {
		if p.left == leftUnknown {
			n++
		}
	}
	return n
}

func (ln *line) drop(p *position) {
	if i := slices.Index(ln.positions, p); i >= 0 {
		ln.positions = slices.Delete(ln.positions, i, i+1)
	}
}

// firstWanted returns nil if all positions are over. Callers hold mu.
func (ln *line) firstWanted() *position {
	if i := slices.IndexFunc(ln.positions, (*position).wanted); i >= 0 {
		return ln.positions[i]
	}
	return nil
}

func (ln *line) lockedByOwn() *fence.LockedError {
	locked := &fence.LockedError{Resource: ln.resource}
	if p := ln.firstWanted(); p != nil {
		locked.Holder = p.holder
	}
	return locked
}

// own returns the position whose key is k; nil if k is or may be another process's. Callers hold mu.
func (ln *line) own(k watch.Key) *position {
	i, found := slices.BinarySearchFunc(ln.positions, k.Created, (*position).compare) // mutant: another-key-of-the-name-is-the-own
	if !found {
		return nil
	}
	return ln.positions[i]
}

func (p *position) compare(created int64) int {
	if p.token == 0 {
		return 1
	}
	return cmp.Compare(int64(p.token), created)
}

func (ln *line) overBefore(p *position) []*position {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	var left []*position
	for _, e := range ln.positions {
		if e.token == 0 || e.token >= p.token {
			break
		}
		if !e.wanted() {
			left = append(left, e)
		}
	}
	return left
}

// quantum bounds a process's keys in one queue, so that a call elsewhere waits for at most that many of each
// process.
const quantum = 32

// maxPlaces is one with MutexKeys, since positions of a session share one key then.
func (ln *line) maxPlaces() int32 {
	if ln.locker.cluster.Keys.Mutex {
		return 1 // mutant: goroutines-share-the-key-of-the-session
	}
	return quantum // mutant: quantum-has-no-end
}

func (ln *line) tryTake() *fence.LockedError {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.places > 0 {
		return ln.lockedByOwn()
	}
	ln.places++
	return nil
}

func (ln *line) wait(ctx context.Context) error {
	ln.mu.Lock()
	if ln.places < ln.maxPlaces() {
		ln.places++
		ln.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	ln.waiting = append(ln.waiting, mine)
	ln.contend(nil)
	ln.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	case <-ln.locker.closing.Closed():
	}
	closed := ctx.Err() == nil // asked first: it may be the context of a lease, which takes the lock
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.giveUp(mine)
	if closed {
		return cluster.ErrLockerClosed
	}
	return ln.lockedHere(ctx)
}

func (ln *line) lockedHere(ctx context.Context) error {
	return fmt.Errorf("%w: waiting for another call of this process, or for a lease that it holds "+
		"(a leader writes through Guard.UnderLease): %w", ln.lockedByOwn(), lifecycle.EndOf(ctx))
}

func (ln *line) giveUp(mine chan struct{}) {
	if i := slices.Index(ln.waiting, mine); i >= 0 {
		ln.waiting = slices.Delete(ln.waiting, i, i+1)
		return
	}
	ln.passOn()
}

func (ln *line) passOn() {
	if len(ln.waiting) == 0 {
		ln.places--
		return
	}
	close(ln.waiting[0])
	ln.waiting = ln.waiting[1:]
}

func (ln *line) abandonPlace() {
	ln.mu.Lock()
	ln.passOn()
	ln.mu.Unlock()
	ln.leave()
}

func (ln *line) Changed() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.progress()
}

// progress gives the resource to the first wanted position once no other process can own it: every key with a lower
// create revision is gone, or belongs to a position of this process that has given up. Until that later key goes
// too, no other process owns the resource. Callers hold mu.
func (ln *line) progress() {
	ln.follower.Look(func(rev int64, queue []watch.Key) {
		var room [quantum]*position
		shown, lowest := room[:0], int64(math.MaxInt64)
		for _, k := range queue {
			if p := ln.own(k); p != nil {
				shown = append(shown, p)
				continue
			}
			lowest = min(lowest, k.Created)
			ln.removeStray(k)
		}
		for _, p := range ln.positions {
			if p.token == 0 {
				break
			}
			known := rev >= int64(p.token) // mutant: first-before-anything-is-known
			if !p.clear && (known && lowest > int64(p.token) || ln.follows(p)) {
				p.clear = true
			}
			if known && p.wanted() && !slices.Contains(shown, p) {
				p.askWhyGone()
			}
		}
	})
	first := ln.firstWanted()
	if first == nil {
		return
	}
	if first.clear && !first.first && !first.asked {
		first.first = true
		first.wake()
	}
	if first.Watched() && ln.contended(first) {
		first.Contend()
	}
}

func (ln *line) follows(p *position) bool {
	if p.pred == 0 || p.pred == ln.passed { // mutant: acquire-is-first-behind-another-key
		return true
	}
	pred := ln.own(watch.Key{Created: p.pred})
	return pred != nil && pred.clear // mutant: passes-on-past-another-process
}

func (ln *line) firstHolder() string {
	first, _ := ln.follower.First()
	if p := ln.own(first); p != nil {
		return p.holder
	}
	return cluster.HolderIn([]byte(first.Value))
}

// askWhyGone learns by a renewal whether the key was deleted or the session is over. Callers hold line.mu.
func (p *position) askWhyGone() {
	if p.asked {
		return
	}
	p.asked = true
	p.Session.RenewNow(func() {
		p.lose(fence.LossDeleted)
		p.settle(removed)
	})
}

func (ln *line) follow() {
	if !ln.watched {
		ln.watched, ln.denied = true, false
		ln.locker.watcher.Add(&ln.follower)
	}
}

const watchAfter = 100 * time.Millisecond

// followSoon waits for watchAfter: for a short lock the watch would be more work than the lock. Callers hold mu.
func (ln *line) followSoon() {
	if ln.watched || ln.soon {
		return
	}
	ln.soon = true
	time.AfterFunc(watchAfter, func() {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		ln.soon = false
		if ln.firstWanted() != nil {
			ln.follow()
		}
	})
}

func (ln *line) Waits() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return slices.ContainsFunc(ln.positions, func(p *position) bool { return p.wanted() && !p.first })
}

// Denied ends waiting positions. A holder can't see others any more, and assumes that they wait.
func (ln *line) Denied(err error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.watched, ln.denied = false, true
	for _, p := range ln.positions {
		if p.first {
			p.Contend()
		} else {
			p.finish(err)
		}
	}
}

// AfterContended implements fence.Lease. Waiting goroutines of the same Locker count too. With Config.MutexKeys it
// calls f at once for a name with a slash.
func (p *position) AfterContended(f func()) (stop func() bool) {
	ln := p.line
	return p.Watch(f, func() {
		ln.follow()
		if ln.contended(p) { // mutant: waiters-from-before-the-grant-are-not-contention
			p.Contend()
		}
	})
}

func (ln *line) contend(p *position) {
	if first := ln.firstWanted(); first != nil && first != p {
		first.Contend()
	}
}

func (ln *line) contended(p *position) bool {
	another := func(q *position) bool { return q != p && q.wanted() }
	keys, others := ln.locker.cluster.Keys, false
	if ln.denied || len(ln.waiting) > 0 || slices.ContainsFunc(ln.positions, another) || keys.HidesWaiters(ln.resource) {
		return true
	}
	ln.follower.Look(func(_ int64, queue []watch.Key) {
		others = slices.ContainsFunc(queue, func(k watch.Key) bool {
			id, _, ours := keys.ParseName(k.Name)
			return ln.own(k) == nil && !(ours && id == p.Session.ID)
		})
	})
	return others
}

// removeStray deletes a key of this process that no position has, behind which all calls would wait for ever: a Txn
// that the client sent twice may write a key again after its deletion. Callers hold mu.
//
// A position that gets k's name meanwhile takes the key over, and its put changes the mod revision. So a late
// deletion requires that the mod revision is still the create revision.
func (ln *line) removeStray(k watch.Key) {
	if k.Created <= ln.passed || k.Created == ln.stray || !ln.isStray(k) {
		return
	}
	ln.stray = k.Created
	l, key := ln.locker, ln.follower.Queue+k.Name
	l.cluster.Tasks.Start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, l.cluster.RequestTimeout)
		defer cancel()
		untouched := clientv3.Compare(clientv3.ModRevision(key), "=", k.Created) // mutant: late-removals-delete-what-was-taken-over
		if err := l.erase(ctx, clientv3.OpTxn([]clientv3.Cmp{untouched}, []clientv3.Op{clientv3.OpDelete(key)}, nil)); err == nil {
			return
		}
		ln.mu.Lock()
		defer ln.mu.Unlock()
		ln.stray = 0
	})
}

func (ln *line) isStray(k watch.Key) bool {
	id, number, ok := ln.locker.cluster.Keys.ParseName(k.Name)
	return ok && slices.ContainsFunc(ln.positions, func(p *position) bool { return p.Session.ID == id }) &&
		!slices.ContainsFunc(ln.positions, func(p *position) bool { return p.Session.ID == id && int32(p.number) == number })
}
