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
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// position is one acquisition: one key in the queue of a resource, from before it is
// written until it is known to be gone. It is over when it is released, given up or lost,
// and settled when its key is gone and no request that is still under way can write it.
type position struct {
	line     *line
	session  *session.Session
	holder   string
	campaign *string // what a candidate proclaims at first, nil for a lock

	flight *flight // that writes the key; guarded by sender.mu

	// The rest is guarded by line.mu.
	token     fence.Token // 0 until the key is known to be written
	epoch     int64
	pred      int64           // create revision of the key that was directly ahead when this one was written; 0 if there was none
	clear     bool            // no other process's key is ahead
	first     bool            // it owns the resource
	answered  bool            // it is known whether the key was written, or that this can't be known
	clearing  bool            // what is left is being removed
	asked     bool            // the key is gone; a renewal will tell why
	cannotSee bool            // etcd denies the holder the right to read the queue
	placed    bool            // it has one of the line's places
	isSettled bool            // see untilSettled
	confirmed bool            // the key is known to be gone
	left      leftover        // what there may be in etcd, once it is answered
	queued    int64           // when it was made, see cluster.LockValue; never changes
	number    int16           // of its key, see freeNumber; never changes
	tries     int32           // how often what is left could not be removed
	failed    error           // why the key wasn't written, or that etcd denies a waiter the right to read the queue
	cause     error           // why it is over; nil before
	news      chan struct{}   // holds one signal for the Acquire to look again; nil unless it waits
	settled   chan struct{}   // closed when it is settled; nil while no call waits for that
	watchers  *contentionFunc // that wait for contention
	onLoss    func()          // called when it is lost; or nil
	lifetime  *lifetime       // made when it is asked for
}

// newPosition returns a position under the session, for a caller that has a place; nil if
// the session is over.
func (ln *line) newPosition(s *session.Session, campaign *string) *position {
	l := ln.locker
	p := &position{
		line: ln, session: s, campaign: campaign, placed: true,
		holder: cluster.NewHolder(l.label), queued: time.Now().UnixMilli(),
	}
	ln.mu.Lock()
	p.number = ln.freeNumber(s)
	ln.add(p)
	ln.contend(p)
	ln.mu.Unlock()
	if !s.Attach(p) {
		ln.mu.Lock()
		ln.drop(p)
		ln.mu.Unlock()
		return nil
	}
	return p
}

// key is the key in etcd.
func (p *position) key() string { return p.line.follower.Queue() + p.name() }

// name is the key without the prefix of the queue. The same few names serve in all lines, so each
// is in memory once.
func (p *position) name() string {
	return unique.Make(p.line.locker.cluster.Keys.Name(p.session.ID, int32(p.number))).Value()
}

// is reports whether k is the key of p.
func (p *position) is(k watch.Key) bool { return p.token != 0 && k.Created == int64(p.token) } // mutant: another-key-of-the-name-is-the-own

// over reports whether p is no longer wanted. Callers hold the line's mu.
func (p *position) over() bool { return p.cause != nil }

// wake wakes the Acquire of p. Callers hold the line's mu.
func (p *position) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// written takes the result of the Txn that wrote the key, with the create revision of the
// key directly ahead, 0 if there is none.
func (p *position) written(token fence.Token, epoch, pred int64) {
	ln := p.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if p.isSettled {
		return
	}
	p.answered, p.left, p.token, p.epoch, p.pred = true, leftKey, token, epoch, pred
	ln.drop(p)
	ln.add(p)
	ln.follower.Wrote(p.name(), int64(token), pred == 0)
	ln.progress()
	switch {
	case p.over():
	case p.first:
		ln.followSoon()
	default:
		ln.follow()
	}
	p.wake()
}

// unwritten takes the error of the Txn that writes the key. certain means that the Txn has not
// written the key and never will.
func (p *position) unwritten(err error, certain bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.answered, p.failed = true, err
	switch {
	case certain:
		p.left = leftNothing
	case errors.Is(err, rpctypes.ErrNoSpace):
		p.left = leftUnlessFull
	default:
		p.left = leftDoubt
	}
	if p.cause == nil {
		p.cause = errAbandoned
	}
	p.wake()
}

// granted is the grant; its token is 0 until the key is written.
func (p *position) granted() fence.Grant {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return fence.Grant{Resource: p.line.resource, Epoch: p.epoch, Token: p.token, Holder: p.holder}
}

// encode returns the content of p's key, which proclaims value. With MutexKeys a
// candidate's key holds value alone: etcd's own tools show it as it is.
func (p *position) encode(epoch int64, value string) (string, error) {
	if p.campaign != nil && p.line.locker.cluster.Keys.Mutex {
		return value, nil
	}
	return cluster.LockValue{Holder: p.holder, Epoch: epoch, Queued: p.queued, Value: value}.Encode()
}

// lease is a position that is first in its queue. As a fence.Lease it takes no memory of its
// own.
type lease struct{ position *position }

var _ fence.Lease = lease{}

// Key is the lock key in etcd.
func (le lease) Key() string { return le.position.key() }

// Grant implements fence.Lease.
func (le lease) Grant() fence.Grant { return le.position.granted() }

// Context implements fence.Lease.
func (le lease) Context() context.Context { return le.position.context() }

// Done implements fence.Lease.
func (le lease) Done() <-chan struct{} { return le.position.context().Done() }

// Err implements fence.Lease.
func (le lease) Err() error { return le.position.ended() }

// Remaining implements fence.Lease.
func (le lease) Remaining() time.Duration {
	if le.position.ended() != nil {
		return 0
	}
	return le.position.session.Remaining()
}

// AfterContended implements fence.Lease.
func (le lease) AfterContended(f func()) (stop func() bool) { return le.position.afterContended(f) }

// AfterLost implements fence.Lease.
func (le lease) AfterLost(f func()) { le.position.afterLost(f) }

// Release deletes the key. With a ctx that has ended it returns the error of ctx at once
// and deletes the key in the background, where each attempt is bounded by
// the time of one request alone.
func (le lease) Release(ctx context.Context) error {
	if !le.position.end(fence.ErrReleased) {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	return le.position.line.locker.giveBack(ctx, le.position)
}

// end makes p over, and its context end. It reports whether p had not been over before.
func (p *position) end(cause error) bool {
	ln := p.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if p.over() {
		return false
	}
	p.cause, p.watchers = cause, nil
	if p.lifetime != nil {
		p.lifetime.end(cause)
	}
	if p.onLoss != nil && errors.Is(cause, fence.ErrLeaseLost) {
		go p.onLoss() // mutant: loss-is-not-told
	}
	p.onLoss = nil
	p.wake()
	ln.progress() // the next call of this process may have the resource now
	return true
}

// lose ends the position as lost.
func (p *position) lose(reason fence.LossReason) {
	loss := &fence.LeaseLostError{Grant: p.granted(), Reason: reason}
	if reason == fence.LossDeadline {
		failure := p.session.LastFailure()
		loss.Paused = p.session.Paused()
		if loss.Paused > 0 && errors.Is(failure, context.DeadlineExceeded) {
			failure = nil // etcd may have answered while the process didn't run
		}
		loss.Err = p.line.locker.cluster.Diagnose("renew the session's lease", failure)
	}
	p.end(loss)
}

// afterLost implements fence.Lease's AfterLost.
func (p *position) afterLost(f func()) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	switch earlier := p.onLoss; {
	case p.over():
		if errors.Is(p.cause, fence.ErrLeaseLost) {
			go f()
		}
	case earlier == nil:
		p.onLoss = f
	default:
		p.onLoss = func() {
			go earlier()
			f()
		}
	}
}

// SessionEnded implements session.Dependent. In etcd the key may outlive the session until
// etcd ends its lease. But no request under that lease takes effect after that end, and the
// next holder gets the resource only after it.
func (p *position) SessionEnded(reason fence.LossReason) {
	p.lose(reason)
	p.settle(false)
}

// settle ends what p has in its line. Later calls are no-ops.
func (p *position) settle(confirmed bool) {
	ln := p.line
	ln.mu.Lock()
	if p.isSettled {
		ln.mu.Unlock()
		return
	}
	p.isSettled, p.confirmed = true, confirmed
	ln.drop(p)
	if confirmed && p.clear { // mutant: passes-on-behind-what-was-lost
		ln.passed = max(ln.passed, int64(p.token))
	}
	p.leavePlace()
	if p.settled != nil {
		close(p.settled)
	}
	ln.mu.Unlock()
	p.session.Detach(p)
	ln.leave()
}

// untilSettled returns a channel that is closed when p is settled.
func (p *position) untilSettled() <-chan struct{} {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.settled == nil {
		p.settled = make(chan struct{})
		if p.isSettled {
			close(p.settled)
		}
	}
	return p.settled
}

// gone reports whether p is settled, and if so whether its key is known to be gone.
func (p *position) gone() (settled, confirmed bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.isSettled, p.confirmed
}

// lifetime is the context of a position, made when it is asked for: most never are.
type lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// context returns the context that ends when p is over.
func (p *position) context() context.Context {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.lifetime == nil {
		ctx, end := context.WithCancelCause(context.Background())
		p.lifetime = &lifetime{ctx, end}
		if p.over() {
			end(p.cause)
		}
	}
	return p.lifetime.ctx
}

// ended is why p is over, nil if it isn't.
func (p *position) ended() error {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.cause
}
