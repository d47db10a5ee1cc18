package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// place is one acquisition: one key in the queue of a resource, from before it
// is written until it is known to be gone. Its context ends when it is released,
// given up or lost; settled is closed when no trace of it can matter any more,
// and only then the next acquisition of this process may begin (F2).
type place struct {
	locker   *Locker
	session  *session
	resource string
	key      string
	nonce    string
	holder   string
	since    time.Time
	campaign *string // what a candidate proclaims at first, nil for a lock
	number   int64   // of the Txn that writes the key, within the session

	ctx       context.Context
	cancel    context.CancelCauseFunc
	turn      chan struct{} // closed when the key is the first of its queue
	settled   chan struct{}
	settling  sync.Once
	confirmed bool // the key is known to be gone; read after settled

	denied chan error // holds one error: etcd refuses to show the queue to a waiter

	followed             // its mu also guards these:
	grant    fence.Grant // complete once the key is written
	first    bool
	doubted  bool                        // the key is gone; the session is being asked why
	blind    bool                        // etcd refuses to show who waits
	watchers map[*contendedFunc]struct{} // those who ask whether others wait
}

// contendedFunc is one registration of AfterContended.
type contendedFunc struct{ f func() }

// newPlace returns a place in the session; nil if the session is over.
func (l *Locker) newPlace(s *session, resource string) *place {
	nonce := newNonce()
	p := &place{
		locker: l, session: s, resource: resource,
		key:   l.keys.lock(resource, s.id, nonce),
		nonce: nonce, holder: holderName(l.cfg.Label, nonce), since: time.Now(),
		turn: make(chan struct{}), settled: make(chan struct{}), denied: make(chan error, 1),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.grant = fence.Grant{Resource: resource, Holder: p.holder}
	p.queue, p.over, p.changed, p.refused = l.keys.queue(resource), p.ctx.Done(), p.progress, p.deny
	p.view.own = p.key
	l.local.occupy(resource, p)
	if !s.add(p) {
		return nil
	}
	return p
}

// written takes the result of the Txn that wrote the key.
func (p *place) written(o outcome, epoch int64) {
	p.mu.Lock()
	p.grant.Token, p.grant.Epoch = o.token, epoch
	p.view.token = int64(o.token)
	if o.first {
		p.view.alone()
	} else {
		p.view.owner = o.owner.Value
	}
	p.mu.Unlock()
	p.progress()
	p.locker.watch.add(&p.followed)
	if p.ctx.Err() != nil { // it ended before add: nobody else takes it off
		p.locker.watch.remove(&p.followed)
	}
}

// end ends the place's context. It reports whether it had not ended before.
func (p *place) end(cause error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.watchers = nil
	p.cancel(cause)
	return true
}

// lose ends the place for a reason that its holder didn't choose.
func (p *place) lose(reason fence.LossReason) {
	loss := &fence.LeaseLostError{Grant: p.granted(), Reason: reason}
	if reason == fence.LossDeadline {
		loss.Err = p.locker.diagnose(p.session.notRenewed())
	}
	p.end(loss)
}

// sessionOver makes place a tenant. Nothing under the session's lease can take
// effect later than etcd's own end of it, and etcd orders that before whoever
// comes next.
func (p *place) sessionOver(reason fence.LossReason) {
	p.lose(reason)
	p.settle(false)
}

// settle lets the next acquisition begin. Only the first call counts.
func (p *place) settle(confirmed bool) {
	p.settling.Do(func() {
		p.confirmed = confirmed
		p.locker.watch.remove(&p.followed)
		p.session.remove(p)
		p.locker.local.leave(p.resource)
		close(p.settled)
	})
}

func (p *place) granted() fence.Grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grant
}

// progress acts on what the view shows now.
func (p *place) progress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.first && p.view.first() {
		p.first = true
		close(p.turn)
	}
	if p.contended() {
		p.tellContended()
	}
	if p.view.gone() {
		p.doubt()
	}
}

// deny ends the wait of a waiter that etcd refuses to show its queue. A holder
// goes on; since it can't see whether others wait, it assumes that they do.
func (p *place) deny(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first {
		p.blind = true
		p.tellContended()
		return
	}
	p.denied <- err
}

// contended reports whether others wait, as far as p can know. Callers hold mu.
func (p *place) contended() bool { return p.blind || p.view.contended() }

// doubt asks why the key is gone. Callers hold mu.
func (p *place) doubt() {
	if p.doubted {
		return
	}
	p.doubted = true
	p.session.ask(func() {
		p.lose(fence.LossDeleted)
		p.settle(true)
	})
}

// encode returns the content of p's key, which proclaims value. With MutexKeys a
// candidate's key holds value alone: etcd's own tools show it as it is.
func (p *place) encode(epoch int64, value string) (string, error) {
	if p.campaign != nil && p.locker.keys.mutex {
		return value, nil
	}
	return lockValue{Holder: p.holder, Epoch: epoch, Since: p.since, Value: value}.encode()
}

// contend calls all who asked to be told that others wait.
func (p *place) contend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tellContended()
}

// tellContended is contend for callers who hold mu.
func (p *place) tellContended() {
	for w := range p.watchers {
		go w.f()
	}
	p.watchers = nil
}
