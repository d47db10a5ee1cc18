package queue

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Position is one acquisition: one key in the queue of a resource, from before it is
// written until it is known to be gone. It is over when it is released, given up or lost,
// and settled when its key is gone and no request that is still under way can write it.
type Position struct {
	line     *line
	session  *session.Session
	name     string // the key without the prefix of the queue
	holder   string
	campaign *string // what a candidate proclaims at first, nil for a lock

	flight *flight // that writes the key; guarded by sender.mu

	// The rest is guarded by line.mu.
	token     fence.Token // 0 until the key is known to be written
	epoch     int64
	pred      int64         // create revision of the key that was directly ahead when this one was written; 0 if there was none
	clear     bool          // no other process's key is ahead
	first     bool          // it owns the resource
	answered  bool          // it is known whether the key was written, or that this can't be known
	clearing  bool          // what is left is being removed
	asked     bool          // the key is gone; a renewal will tell why
	cannotSee bool          // etcd denies the holder the right to read the queue
	placed    bool          // it has one of the line's places
	isSettled bool          // see untilSettled
	confirmed bool          // the key is known to be gone
	left      leftover      // what there may be in etcd, once it is answered
	tries     int32         // how often that could not be removed
	failed    error         // why the key wasn't written, or that etcd denies a waiter the right to read the queue
	cause     error         // why it is over; nil before
	news      chan struct{} // holds one signal that there is something to see, for Acquire
	settled   chan struct{} // closed when it is settled; nil while nobody waits for that
	watchers  map[*contendedFunc]struct{}
	ctx       context.Context // made when it is asked for
	cancel    context.CancelCauseFunc
}

// newPosition returns a position under the session, for a caller that has a place; nil if
// the session is over.
func (l *line) newPosition(s *session.Session, campaign *string) *Position {
	q := l.queues
	p := &Position{
		line: l, session: s, campaign: campaign, placed: true,
		name:   q.cluster.Keys.Name(s.ID, s.NextNumber()),
		holder: keys.NewHolder(q.label),
		news:   make(chan struct{}, 1),
	}
	l.mu.Lock()
	l.add(p)
	l.contend(p)
	l.mu.Unlock()
	if !s.Attach(p) {
		l.mu.Lock()
		l.drop(p)
		l.mu.Unlock()
		return nil
	}
	return p
}

// key is the key in etcd.
func (p *Position) key() string { return p.line.follower.Queue() + p.name }

// is reports whether k is the key of p.
func (p *Position) is(k watch.Key) bool { return p.token != 0 && k.Created == int64(p.token) }

// sameSession reports whether k is a key of p's session.
func (p *Position) sameSession(k watch.Key) bool {
	id, _, unique := strings.Cut(p.name, "-")
	return unique && strings.HasPrefix(k.Name, id+"-")
}

// over reports whether p is no longer wanted. Callers hold the line's mu.
func (p *Position) over() bool { return p.cause != nil }

// tell wakes the Acquire of p. Callers hold the line's mu.
func (p *Position) tell() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// written takes the result of the Txn that wrote the key, with the create revision of the
// key directly ahead, 0 if there is none.
func (p *Position) written(token fence.Token, epoch, pred int64) {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.isSettled {
		return
	}
	p.answered, p.left, p.token, p.epoch, p.pred = true, leftKey, token, epoch, pred
	l.drop(p)
	l.add(p)
	l.follower.Wrote(p.name, int64(token), pred == 0)
	l.progress()
	switch {
	case p.over():
	case p.first:
		l.followSoon()
	default:
		l.follow()
	}
	p.tell()
}

// unwritten takes the error of the Txn that writes the key; certain means that it has
// certainly not written it, and never will.
func (p *Position) unwritten(err error, certain bool) {
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
	p.tell()
}

// end makes p over, and its context end. It reports whether p had not been over before.
func (p *Position) end(cause error) bool {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.over() {
		return false
	}
	p.cause, p.watchers = cause, nil
	if p.cancel != nil {
		p.cancel(cause)
	}
	p.tell()
	l.progress() // the next call of this process may have the resource now
	return true
}

// lose ends the position as lost.
func (p *Position) lose(reason fence.LossReason) {
	loss := &fence.LeaseLostError{Grant: p.granted(), Reason: reason}
	if reason == fence.LossDeadline {
		loss.Err = p.line.queues.cluster.Diagnose("renew the session's lease", p.session.LastFailure())
	}
	p.end(loss)
}

// SessionEnded implements session.Dependent. In etcd the key may outlive the session until
// etcd ends its lease. But no request under that lease takes effect after that end, and the
// next holder gets the resource only after it.
func (p *Position) SessionEnded(reason fence.LossReason) {
	p.lose(reason)
	p.settle(false)
}

// settle ends what p has in its line. Later calls are no-ops.
func (p *Position) settle(confirmed bool) {
	l := p.line
	l.mu.Lock()
	if p.isSettled {
		l.mu.Unlock()
		return
	}
	p.isSettled, p.confirmed = true, confirmed
	l.drop(p)
	if confirmed && p.clear {
		l.passed = max(l.passed, int64(p.token))
	}
	p.leavePlace()
	if p.settled != nil {
		close(p.settled)
	}
	l.mu.Unlock()
	p.session.Detach(p)
	l.leave()
}

// leavePlace passes on p's place in the line. Callers hold the line's mu.
func (p *Position) leavePlace() {
	if p.placed {
		p.placed = false
		p.line.passOn()
	}
}

// untilSettled returns a channel that is closed when p is settled.
func (p *Position) untilSettled() <-chan struct{} {
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

// gone reports whether p is settled, and whether its key is known to be gone.
func (p *Position) gone() (settled, confirmed bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.isSettled, p.confirmed
}

// context returns the context that ends when p is over.
func (p *Position) context() context.Context {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.ctx == nil {
		p.ctx, p.cancel = context.WithCancelCause(context.Background())
		if p.over() {
			p.cancel(p.cause)
		}
	}
	return p.ctx
}

// ended is why p is over, nil if it isn't.
func (p *Position) ended() error {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.cause
}

// granted is the grant; its token is 0 until the key is written.
func (p *Position) granted() fence.Grant {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return fence.Grant{Resource: p.line.resource, Epoch: p.epoch, Token: p.token, Holder: p.holder}
}

// askWhyGone finds out by a renewal whether the key was deleted, or the session is over.
// Callers hold the line's mu.
func (p *Position) askWhyGone() {
	if p.asked {
		return
	}
	p.asked = true
	p.session.RenewNow(func() {
		p.lose(fence.LossDeleted)
		p.settle(true)
	})
}

// encode returns the content of p's key, which proclaims value. With MutexKeys a
// candidate's key holds value alone: etcd's own tools show it as it is.
func (p *Position) encode(epoch int64, value string) (string, error) {
	if p.campaign != nil && p.line.queues.cluster.Keys.Mutex {
		return value, nil
	}
	return keys.LockValue{Holder: p.holder, Epoch: epoch, Value: value}.Encode()
}

// contendedFunc is one registration of AfterContended.
type contendedFunc struct{ f func() }

// AfterContended counts waiting goroutines of the same Locker too: they need the holder to
// release the lock, as other processes do. With Config.MutexKeys it calls f at once for a
// name with a slash: waiters for a shorter name can't be seen.
func (p *Position) AfterContended(f func()) (stop func() bool) {
	l, w := p.line, &contendedFunc{f: f}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.over() {
		return func() bool { return false }
	}
	if p.watchers == nil {
		p.watchers = map[*contendedFunc]struct{}{}
	}
	p.watchers[w] = struct{}{}
	l.follow()
	if l.contended(p) {
		p.callContended()
	}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, waiting := p.watchers[w]
		delete(p.watchers, w)
		return waiting
	}
}

// callContended calls the functions that wait for contention. Callers hold the line's mu.
func (p *Position) callContended() {
	for w := range p.watchers {
		go w.f()
	}
	p.watchers = nil
}
