package queue

import (
	"context"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Position is one acquisition: one key in the queue of a resource, from before it is
// written until it is known to be gone. Its context ends when it is released, given up or
// lost. settled is closed when its key is gone and no request that is still under way can
// write it; only then does the next acquisition of this process begin (F2).
type Position struct {
	queues   *Queues
	session  *session.Session
	resource string
	queue    string // prefix of the keys of the resource
	key      string
	holder   string
	campaign *string // what a candidate proclaims at first, nil for a lock

	ctx       context.Context
	cancel    context.CancelCauseFunc
	turn      chan struct{} // closed when the key is the first of its queue
	settled   chan struct{}
	settling  sync.Once
	confirmed bool // the key is known to be gone; read after settled

	denied chan error // has room for one error: etcd denies a waiter the right to read the queue

	follower *watch.Follower

	mu        sync.Mutex
	grant     fence.Grant // complete once the key is written
	first     bool
	asked     bool                        // the key is gone; a renewal will tell why
	cannotSee bool                        // etcd denies the right to read the queue
	watchers  map[*contendedFunc]struct{} // to call when others wait
}

// newPosition returns a position under the session; nil if the session is over.
func (q *Queues) newPosition(s *session.Session, resource string) *Position {
	p := &Position{
		queues: q, session: s, resource: resource, queue: q.cluster.Keys.Queue(resource),
		key:    q.cluster.Keys.Lock(resource, s.ID, s.NextNumber()),
		holder: keys.NewHolder(q.label),
		turn:   make(chan struct{}), settled: make(chan struct{}), denied: make(chan error, 1),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.grant = fence.Grant{Resource: resource, Holder: p.holder}
	p.follower = watch.NewFollower(p.queue, p.ctx.Done(), p.progress, p.deny)
	q.local.setPosition(resource, p)
	if !s.Attach(p) {
		return nil
	}
	return p
}

// written takes the result of the Txn that wrote the key.
func (p *Position) written(o outcome, epoch int64) {
	p.mu.Lock()
	p.grant.Token, p.grant.Epoch = o.token, epoch
	p.mu.Unlock()
	p.follower.Wrote(p.key, int64(o.token), o.first, o.owner.Value)
	p.progress()
	watcher := p.queues.watcher
	watcher.Add(p.follower)
	if p.ctx.Err() != nil { // it ended before Add, so its end did not remove it
		watcher.Remove(p.follower)
	}
}

// end ends the position's context. It reports whether it had not ended before.
func (p *Position) end(cause error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.watchers = nil
	p.cancel(cause)
	return true
}

// lose ends the position as lost.
func (p *Position) lose(reason fence.LossReason) {
	loss := &fence.LeaseLostError{Grant: p.granted(), Reason: reason}
	if reason == fence.LossDeadline {
		loss.Err = p.queues.cluster.Diagnose("renew the session's lease", p.session.LastFailure())
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

// settle lets the next acquisition of this process begin. Later calls are no-ops.
func (p *Position) settle(confirmed bool) {
	p.settling.Do(func() {
		p.confirmed = confirmed
		p.queues.watcher.Remove(p.follower)
		p.session.Detach(p)
		p.queues.local.passOn(p.resource)
		close(p.settled)
	})
}

func (p *Position) isSettled() bool {
	select {
	case <-p.settled:
		return true
	default:
		return false
	}
}

func (p *Position) granted() fence.Grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grant
}

// progress acts on what is known of the queue now.
func (p *Position) progress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.follower.State()
	if !p.first && now.First {
		p.first = true
		close(p.turn)
	}
	if p.cannotSee || now.Contended {
		p.callContended()
	}
	if now.Gone {
		p.askWhyGone()
	}
}

// deny is called when etcd denies the right to read the queue. It ends the wait of a
// waiter. A holder goes on and assumes that others wait, since it can't see them.
func (p *Position) deny(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first {
		p.cannotSee = true
		p.callContended()
		return
	}
	p.denied <- err
}

// askWhyGone finds out by a renewal whether the key was deleted, or the session is over.
// Callers hold mu.
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
	if p.campaign != nil && p.queues.cluster.Keys.Mutex {
		return value, nil
	}
	return keys.LockValue{Holder: p.holder, Epoch: epoch, Value: value}.Encode()
}
