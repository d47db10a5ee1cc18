package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// errAbandoned ends a position whose Acquire failed. No caller has its context.
var errAbandoned = errors.New("etcd: acquire failed")

// Release deletes the key. With a ctx that has ended it returns the error of ctx at once
// and deletes the key in the background, where each attempt is bounded by
// the time of one request alone.
//
// It doesn't wait if another call of this process has queued for the resource: then the
// resource isn't free anyway, and whatever this process does with it comes after that call.
// A deletion that fails is repeated until etcd confirms it or the session is over, as it is
// when a caller waits.
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
	case <-p.news: // it is settled
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

// release ends p unless it is over, and lets one more call of this process queue. passedOn reports whether
// another call of this process wants the resource.
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

// keepsPlace reports whether p, which is over, has its place in the line until it is settled. With MutexKeys
// the next call writes the same key, which has to be gone. Callers hold the line's mu.
func (p *position) keepsPlace() bool {
	return p.cause != fence.ErrReleased || p.line.locker.cluster.Keys.Mutex // mutant: next-acquisition-does-not-wait-for-the-doubt
}

// abandon ends p, which is no longer wanted. What it has left in etcd is removed in the
// background, once the Txn that writes its key has an outcome.
func (l *Locker) abandon(p *position) {
	p.end(errAbandoned)
	if l.sender.giveUp(p) {
		p.unwritten(errAbandoned, true)
	}
	l.discard(p)
}

// abandonUnsent abandons positions whose keys are not written, because of err.
func (l *Locker) abandonUnsent(err error, ps ...*position) {
	for _, p := range ps {
		p.unwritten(err, true)
		l.abandon(p)
	}
}

// discard removes what p has left in etcd, if p is over and the Txn that writes its key has an
// outcome. It is called when either happens, and acts when both have.
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
		l.cleaner.add(p)
	}
}

// cleaner removes what positions have left in etcd: keys whose release failed, and keys of
// acquisitions that were given up, or are in doubt. It sends one request at a time, for many
// positions: after etcd was slow there may be thousands, which must not delay renewals. It
// repeats a request until it succeeds or the session is over, or until the client is closed:
// then this process makes no more keys, and the session expires in etcd.
type cleaner struct {
	locker *Locker

	most int // how many go in a request: fewer after one that failed, so that one fails alone in the end

	mu      sync.Mutex
	waiting []*position
	running bool
}

// add takes p, which is over and has left something in etcd.
func (c *cleaner) add(p *position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, p)
	if !c.running {
		c.running = true
		c.locker.cluster.Tasks.Start(c.run)
	}
}

// run cleans until nothing is left, or ctx ends.
func (c *cleaner) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		batch := c.take()
		if len(batch) == 0 {
			return
		}
		try, cancel := context.WithTimeout(ctx, c.locker.cluster.RequestTimeout)
		_, left := batch[0].state()
		err := c.locker.withdraw(try, left == leftDoubt, batch...)
		cancel()
		if err == nil || errors.Is(err, cluster.ErrClientClosed) {
			failures, c.most = 0, min(2*c.most, maxKeys)
			how := removed
			if err != nil {
				how = sessionOver
			}
			for _, p := range batch {
				p.settle(how)
			}
			continue
		}
		c.most = max(len(batch)/2, 1)
		c.putBack(batch)
		if !c.locker.sender.shrink(err, len(batch)) {
			c.failed(batch, err)
			cluster.Pause(ctx, failures)
			failures++
		}
	}
}

// take returns positions for one request: of one session, and all in doubt or none. None goes before an earlier
// one of its line, see sender.takeDels. If there are none, the cleaner stops until add starts it again.
func (c *cleaner) take() []*position {
	room := min(c.locker.sender.roomNow(), c.most)
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch, rest []*position
	var kind leftover
	for _, p := range c.waiting {
		how, left := p.state()
		if len(batch) == 0 {
			kind = left
		}
		switch {
		case how >= removed: // its session is over, or it was added twice; mutant: what-was-removed-is-removed-again
		case len(batch) == 0, len(batch) < room && p.session == batch[0].session && left == kind && !inLines(rest, p):
			batch = append(batch, p)
		default:
			rest = append(rest, p)
		}
	}
	c.waiting, c.running = rest, len(batch) > 0
	return batch
}

// putBack lets those of other lines go first.
func (c *cleaner) putBack(batch []*position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var others, behind []*position
	for _, p := range c.waiting {
		if inLines(batch, p) {
			behind = append(behind, p)
		} else {
			others = append(others, p)
		}
	}
	c.waiting = slices.Concat(others, batch, behind)
}

// inLines reports whether one of ps is in the line of p.
func inLines(ps []*position, p *position) bool {
	return slices.ContainsFunc(ps, func(other *position) bool { return other.line == p.line })
}

// failed notes a request that failed. It ends the session if nothing else needs it, so that
// no renewal keeps the keys alive.
func (c *cleaner) failed(batch []*position, err error) {
	s := batch[0].session
	if errors.Is(err, cluster.ErrLeaseGone) {
		s.End(fence.LossExpired)
	}
	s.EndIfUnneeded() // mutant: what-is-in-doubt-is-kept-alive
	c.locker.cluster.Logger.Warn("lock keys could not be removed yet", "keys", len(batch), "first", batch[0].line.resource, "error", err)
}

// state is how far the removal of what p has left in etcd has come, and what that is.
func (p *position) state() (how removal, left leftover) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.removal, p.left
}
