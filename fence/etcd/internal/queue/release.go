package queue

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// errAbandoned ends a position whose Acquire failed. No caller has its context.
var errAbandoned = errors.New("etcd: acquire failed")

// leftover is what a position that is over has left in etcd.
type leftover int8

const (
	leftNothing    leftover = iota
	leftKey                 // its key
	leftDoubt               // perhaps its key, and perhaps the Txn that writes it is still under way
	leftUnlessFull          // perhaps its key, but no Txn: etcd has answered that it is out of space
)

// giveBack deletes the key of a lease that was released. If the first attempt isn't
// confirmed, more are made in the background, and giveBack waits for them or for ctx.
//
// It doesn't wait if another call of this process has queued for the resource: then the
// resource isn't free anyway, and whatever this process does with it comes after that call.
// A deletion that fails is repeated until etcd confirms it or the session is over, as it is
// when a caller waits.
func (q *Queues) giveBack(ctx context.Context, p *Position) error {
	p.session.Abandon(p)
	passedOn := p.line.passedOn(p)
	q.sender.del(ctx, p, !passedOn)
	if passedOn {
		return nil
	}
	settled, confirmed := p.gone()
	if !settled {
		select {
		case <-p.untilSettled():
		case <-ctx.Done():
			return cluster.Ended(ctx, "release "+p.line.resource)
		}
		_, confirmed = p.gone()
	}
	if !confirmed {
		return q.cluster.Unavailable("release "+p.line.resource, errSessionOver)
	}
	return nil
}

// passedOn reports whether other calls of this process wait for what p held, and lets one
// more of them queue.
func (l *line) passedOn(p *Position) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := l.ahead() != nil || len(l.waiting) > 0
	p.clearing = true
	if !l.queues.cluster.Keys.Mutex { // else the next call writes the same key, which has to be gone; mutant: next-acquisition-does-not-wait-for-the-doubt
		p.leavePlace()
	}
	return others
}

// abandon ends p, which is no longer wanted. What it has left in etcd is removed in the
// background, once the Txn that writes its key has an outcome.
func (q *Queues) abandon(p *Position) {
	p.end(errAbandoned)
	p.session.Abandon(p)
	if q.sender.giveUp(p) {
		p.unwritten(errAbandoned, true)
	}
	q.discard(p)
}

// discard removes what p has left in etcd, if p is over and the Txn that writes its key has an
// outcome. It is called when either happens, and acts when both have.
func (q *Queues) discard(p *Position) {
	left, now := p.discarded()
	switch {
	case !now:
	case left == leftNothing: // mutant: waiters-that-leave-keep-their-key, acquire-in-doubt-is-taken-for-nothing
		p.settle(true)
	default:
		p.session.Abandon(p)
		q.cleaner.add(p)
	}
}

// discarded reports whether what p has left has to be removed now.
func (p *Position) discarded() (left leftover, now bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if !p.answered || !p.over() || p.isSettled || p.clearing {
		return 0, false
	}
	p.clearing = true
	return p.left, true
}
