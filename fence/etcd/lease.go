package etcd

import (
	"context"
	"errors"
	"time"
	"unique"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	lifecycle "github.com/fencekit/fencekit/fence/internal/session"
)

// position is one acquisition, and to its caller a lease: one key in the queue of a resource. It is over when it is
// released, given up or lost; and settled when its key is gone and no request under way can write it, or when its
// session has ended.
type position struct {
	lifecycle.Life[clientv3.LeaseID]
	line     *line
	holder   string
	campaign *string
	queued   int64
	number   int16
	gaps     int32 // before the key was written

	// The rest is guarded by line.mu.
	news    chan struct{}
	token   fence.Token // 0 until the key is known to be written
	epoch   int64
	pred    int64 // create revision of the key directly ahead; 0 if there was none
	clear   bool  // no other process's key is ahead
	first   bool  // owns the resource
	asked   bool  // the key is gone, and a renewal will tell why
	left    leftover
	removal removal
}

var _ fence.Lease = (*position)(nil)

type leftover int8

const (
	leftUnknown leftover = iota // the Txn that writes the key has no outcome yet
	leftNothing
	leftKey   // its key, unless that was deleted, or refused for lack of space
	leftDoubt // perhaps its key, or a Txn under way that writes it
)

// removal is the state of a leftover. From removed on the position is settled.
type removal int8

const (
	notRemoved removal = iota
	removing
	removed
	sessionOver // the end of the lease removes it
)

// newPosition takes the caller's place. Check afterwards whether s had ended before: nothing else tells the
// position.
func (ln *line) newPosition(s *session.Session, campaign *string) *position {
	p := &position{
		line: ln, campaign: campaign, news: make(chan struct{}, 1),
		holder: lifecycle.NewHolder(ln.locker.label), queued: time.Now().UnixMilli(),
	}
	p.Begin(p, s, &ln.mu)
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

// name is interned, since the same few names serve all lines.
func (p *position) name() string {
	return unique.Make(p.line.locker.cluster.Keys.Name(p.Session.ID, int32(p.number))).Value()
}

func (p *position) wanted() bool { return p.Over() == nil }

func (p *position) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

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
	if p.Session == ln.session {
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
	// Else the session has ended, which cancels a claim, and will tell p why.
	if errors.Is(err, cluster.ErrLeaseGone) || p.Session.Context().Err() == nil {
		p.finish(err)
	}
}

// Grant implements fence.Lease. The token is 0 until the key is written.
func (p *position) Grant() fence.Grant {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.grant()
}

func (p *position) grant() fence.Grant {
	return fence.Grant{Resource: p.line.resource, Epoch: p.epoch, Token: p.token, Holder: p.holder}
}

// encode returns the key's value. With MutexKeys a candidate's key holds only the proclaimed value, for etcd's own
// tools.
func (p *position) encode(epoch int64, value string) (string, error) {
	if p.campaign != nil && p.line.locker.cluster.Keys.Mutex {
		return value, nil
	}
	return cluster.LockValue{Holder: p.holder, Epoch: epoch, Queued: p.queued, Value: value}.Encode()
}

func (p *position) end(cause error) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.finish(cause) {
		p.line.progress()
	}
}

// finish returns false if p was over already. Callers hold line.mu.
func (p *position) finish(cause error) bool {
	if !p.Finish(cause) {
		return false
	}
	p.Session.Need(-1)
	p.wake()
	return true
}

// Lose implements the session package's Owner.
func (p *position) Lose(reason fence.LossReason) {
	loss := p.Loss(p.grant(), reason, func(err error) error {
		return p.line.locker.cluster.Diagnose("renew the session's lease", err)
	})
	if p.finish(loss) {
		p.line.progress()
	}
}

func (p *position) lose(reason fence.LossReason) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.Lose(reason)
}

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
	if how == removed && p.clear && p.Session == ln.session { // mutant: passes-on-behind-what-was-lost
		ln.passed = max(ln.passed, int64(p.token))
	}
	if p.keepsPlace() {
		ln.passOn()
	}
	p.wake()
	ln.mu.Unlock()
	ln.leave()
}

var errAbandoned = errors.New("etcd: acquire failed")

// Release implements fence.Lease. It doesn't wait if another call of this process has queued: whatever this process
// does with the resource comes after that call. A deletion is repeated until etcd confirms it or the session is
// over.
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
	case <-p.news:
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

// keepsPlace reports whether p keeps its place until it is settled. With MutexKeys it must, since the next call
// writes the same key. Callers hold line.mu.
func (p *position) keepsPlace() bool {
	return p.Over() != fence.ErrReleased || p.line.locker.cluster.Keys.Mutex // mutant: next-acquisition-does-not-wait-for-the-doubt
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

// discard removes leftovers once p is over and its Txn has an outcome. It is called at either event.
func (l *Locker) discard(p *position) {
	p.line.mu.Lock()
	left, now := p.left, p.left != leftUnknown && !p.wanted() && p.removal == notRemoved
	if now {
		p.removal = removing
	}
	p.line.mu.Unlock()
	switch {
	case !now:
	case left == leftNothing: // mutant: waiters-that-leave-keep-their-key
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
