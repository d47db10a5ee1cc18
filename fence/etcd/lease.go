package etcd

import (
	"context"
	"errors"
	"time"
	"unique"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
)

// position is one acquisition, and to its caller a lease: one key in the queue of a resource, from before it is
// written until it is known to be gone. It is over when it is released, given up or lost; and settled when its key
// is gone and no request under way can write it, or when its session has ended.
type position struct {
	line     *line
	session  *session.Session
	holder   string
	campaign *string // what a candidate proclaims at first; nil for a lock
	queued   int64   // see cluster.LockValue
	number   int16   // see freeNumber
	gaps     int32   // of the follower, before the key was written

	// The rest is guarded by line.mu.
	news     chan struct{} // holds one signal for the call that waits; nil if none does
	token    fence.Token   // 0 until the key is known to be written
	epoch    int64
	pred     int64 // create revision of the key directly ahead when this one was written; 0 if there was none
	clear    bool  // no other process's key is ahead
	first    bool  // owns the resource
	asked    bool  // the key is gone, and a renewal will tell why
	left     leftover
	removal  removal
	cause    error           // why it is over; nil before
	watchers []*func()       // wait for contention
	onLoss   func()          // or nil
	lifetime context.Context // made on demand: most are never asked for
	endLife  context.CancelCauseFunc
}

var _ fence.Lease = (*position)(nil)

// leftover is what a position has left in etcd.
type leftover int8

const (
	leftUnknown leftover = iota // the outcome of the Txn that writes the key is open
	leftNothing
	leftKey   // its key, unless deleted; perhaps none if etcd is out of space
	leftDoubt // perhaps its key, and perhaps that Txn is still under way
)

// removal is how far the removal of a leftover has come. From removed on the position is settled.
type removal int8

const (
	notRemoved removal = iota
	removing
	removed
	sessionOver // and etcd removes it with the lease
)

// newPosition returns a position in the caller's place in the line. The caller has to check afterwards whether s
// had ended before: nothing else tells the position.
func (ln *line) newPosition(s *session.Session, campaign *string) *position {
	p := &position{
		line: ln, session: s, campaign: campaign, news: make(chan struct{}, 1),
		holder: cluster.NewHolder(ln.locker.label), queued: time.Now().UnixMilli(),
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.renew(s)
	p.number, p.gaps = ln.freeNumber(s), ln.follower.Gaps()
	ln.add(p)
	s.Need(1)
	ln.contend(p)
	return p
}

func (p *position) Key() string { return p.line.follower.Queue + p.name() }

// name is the key without the queue's prefix. The same few names serve all lines, so each is in memory once.
func (p *position) name() string {
	return unique.Make(p.line.locker.cluster.Keys.Name(p.session.ID, int32(p.number))).Value()
}

// wanted reports whether p is not over. Callers hold line.mu.
func (p *position) wanted() bool { return p.cause == nil }

// wake wakes the call that waits. Callers hold line.mu.
func (p *position) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// written takes the result of the Txn that wrote the key. For pred see position.
func (p *position) written(token fence.Token, epoch, pred int64) {
	ln := p.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if p.removal >= removed {
		return
	}
	p.left, p.token, p.epoch, p.pred = leftKey, token, epoch, pred
	ln.drop(p)
	ln.add(p)
	if p.session == ln.session { // see renew
		ln.follower.Wrote(p.gaps, p.name(), int64(token), pred == 0)
	}
	ln.progress()
	switch {
	case !p.wanted():
	case p.first:
		ln.followSoon()
	default:
		ln.follow()
	}
}

// unwritten takes the error of the Txn that writes the key. If certain, it never writes it.
func (p *position) unwritten(err error, certain bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	switch {
	case certain:
		p.left = leftNothing
	case errors.Is(err, rpctypes.ErrNoSpace):
		p.left = leftKey
	default:
		p.left = leftDoubt
	}
	// Else the session has ended, which cancels a claim, and is about to tell p why.
	if errors.Is(err, cluster.ErrLeaseGone) || p.session.Context().Err() == nil {
		p.finish(err)
	}
}

// Grant implements fence.Lease. The token is 0 until the key is written.
func (p *position) Grant() fence.Grant {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return fence.Grant{Resource: p.line.resource, Epoch: p.epoch, Token: p.token, Holder: p.holder}
}

// encode returns the content of the key. With MutexKeys a candidate's key holds value alone, for etcd's own tools.
func (p *position) encode(epoch int64, value string) (string, error) {
	if p.campaign != nil && p.line.locker.cluster.Keys.Mutex {
		return value, nil
	}
	return cluster.LockValue{Holder: p.holder, Epoch: epoch, Queued: p.queued, Value: value}.Encode()
}

// Context implements fence.Lease.
func (p *position) Context() context.Context {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.lifetime == nil {
		p.lifetime, p.endLife = context.WithCancelCause(context.Background())
		if !p.wanted() {
			p.endLife(p.cause)
		}
	}
	return p.lifetime
}

// Done implements fence.Lease.
func (p *position) Done() <-chan struct{} { return p.Context().Done() }

// Err implements fence.Lease.
func (p *position) Err() error {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.cause
}

// Remaining implements fence.Lease.
func (p *position) Remaining() time.Duration {
	if p.Err() != nil {
		return 0
	}
	return p.session.Remaining()
}

// AfterLost implements fence.Lease.
func (p *position) AfterLost(f func()) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	switch earlier := p.onLoss; {
	case !p.wanted():
		if errors.Is(p.cause, fence.ErrLeaseLost) {
			go f()
		}
	case earlier == nil:
		p.onLoss = f // most have one, and there are as many positions as held resources
	default:
		p.onLoss = func() {
			go earlier()
			f()
		}
	}
}

func (p *position) end(cause error) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.finish(cause) {
		p.line.progress()
	}
}

// finish makes p over, and reports whether it wasn't. Callers hold line.mu.
func (p *position) finish(cause error) bool {
	if !p.wanted() {
		return false
	}
	p.cause, p.watchers = cause, nil
	p.session.Need(-1)
	if p.endLife != nil {
		p.endLife(cause)
	}
	if p.onLoss != nil && errors.Is(cause, fence.ErrLeaseLost) {
		go p.onLoss() // mutant: loss-is-not-told
	}
	p.onLoss = nil
	p.wake()
	return true
}

func (p *position) lose(reason fence.LossReason) {
	loss := &fence.LeaseLostError{Grant: p.Grant(), Reason: reason}
	if reason == fence.LossDeadline {
		failure := p.session.LastFailure()
		loss.Paused = p.session.Paused()
		if loss.Paused > 0 && errors.Is(failure, context.DeadlineExceeded) {
			failure = nil // etcd may have answered in the meantime
		}
		loss.Err = p.line.locker.cluster.Diagnose("renew the session's lease", failure)
	}
	p.end(loss)
}

// sessionEnded ends p with its session: no request under the lease takes effect later.
func (p *position) sessionEnded(reason fence.LossReason) {
	p.lose(reason)
	p.settle(sessionOver)
}

func (p *position) settle(how removal) {
	ln := p.line
	ln.mu.Lock()
	if p.removal >= removed {
		ln.mu.Unlock()
		return
	}
	p.removal = how
	ln.drop(p)
	if how == removed && p.clear && p.session == ln.session { // mutant: passes-on-behind-what-was-lost
		ln.passed = max(ln.passed, int64(p.token))
	}
	if p.keepsPlace() {
		ln.passOn()
	}
	p.wake()
	ln.mu.Unlock()
	ln.leave()
}

// errAbandoned ends a position whose Acquire failed. No caller has its context.
var errAbandoned = errors.New("etcd: acquire failed")

// Release implements fence.Lease. It doesn't wait if another call of this process has queued for the resource:
// whatever this process does with the resource comes after that call. A deletion that fails is repeated until etcd
// confirms it or the session is over.
func (p *position) Release(ctx context.Context) error {
	released, passedOn := p.release()
	if !released {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	l, op := p.line.locker, "release "+p.line.resource
	l.sender.del(p)
	if passedOn {
		return nil
	}
	select {
	case <-p.news: // settled
	case <-ctx.Done():
	}
	switch how, _ := p.state(); how {
	case removed:
		return nil
	case sessionOver:
		return l.cluster.Unavailable(op, errors.New("etcd: session is over"))
	}
	return cluster.Ended(ctx, op)
}

// release ends p, and reports whether another call of this process wants the resource.
func (p *position) release() (released, passedOn bool) {
	ln := p.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !p.finish(fence.ErrReleased) {
		return false, false
	}
	p.removal, p.news = removing, make(chan struct{}, 1)
	ln.progress()
	passedOn = ln.firstWanted() != nil || len(ln.waiting) > 0
	if !p.keepsPlace() {
		ln.passOn()
	}
	return true, passedOn
}

// keepsPlace reports whether p, which is over, keeps its place in the line until it is settled. With MutexKeys the
// next call writes the same key, which has to be gone. Callers hold line.mu.
func (p *position) keepsPlace() bool {
	return p.cause != fence.ErrReleased || p.line.locker.cluster.Keys.Mutex // mutant: next-acquisition-does-not-wait-for-the-doubt
}

func (l *Locker) abandon(p *position) {
	p.end(errAbandoned)
	if l.sender.giveUp(p) {
		p.unwritten(errAbandoned, true)
	}
	l.discard(p)
}

func (l *Locker) abandonUnsent(err error, ps ...*position) {
	for _, p := range ps {
		p.unwritten(err, true)
		l.abandon(p)
	}
}

// discard removes what p has left in etcd once p is over and the Txn that writes its key has an outcome. Call it
// when either happens.
func (l *Locker) discard(p *position) {
	p.line.mu.Lock()
	left, now := p.left, p.left != leftUnknown && !p.wanted() && p.removal == notRemoved
	if now {
		p.removal = removing
	}
	p.line.mu.Unlock()
	switch {
	case !now:
	case left == leftNothing: // mutant: waiters-that-leave-keep-their-key, acquire-in-doubt-is-taken-for-nothing
		p.settle(removed)
	default:
		l.sender.remove(p)
	}
}

func (p *position) state() (how removal, left leftover) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.removal, p.left
}
