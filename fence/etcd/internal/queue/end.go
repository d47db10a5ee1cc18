package queue

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/fence"
)

// end makes p over, and its context end. It reports whether p had not been over before.
func (p *Position) end(cause error) bool {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
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
	p.tell()
	l.progress() // the next call of this process may have the resource now
	return true
}

// lose ends the position as lost.
func (p *Position) lose(reason fence.LossReason) {
	loss := &fence.LeaseLostError{Grant: p.granted(), Reason: reason}
	if reason == fence.LossDeadline {
		failure := p.session.LastFailure()
		loss.Paused = p.session.Paused()
		if loss.Paused > 0 && errors.Is(failure, context.DeadlineExceeded) {
			failure = nil // etcd may have answered while the process didn't run
		}
		loss.Err = p.line.queues.cluster.Diagnose("renew the session's lease", failure)
	}
	p.end(loss)
}

// afterLost implements fence.Lease's AfterLost.
func (p *Position) afterLost(f func()) {
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
	if confirmed && p.clear { // mutant: passes-on-behind-what-was-lost
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

// gone reports whether p is settled, and if so whether its key is known to be gone.
func (p *Position) gone() (settled, confirmed bool) {
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
func (p *Position) context() context.Context {
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
func (p *Position) ended() error {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.cause
}
