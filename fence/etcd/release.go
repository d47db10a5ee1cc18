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

// giveBack deletes the key of a lease that was released. If the first attempt isn't
// confirmed, more are made in the background, and giveBack waits for them or for ctx.
//
// It doesn't wait if another call of this process has queued for the resource: then the
// resource isn't free anyway, and whatever this process does with it comes after that call.
// A deletion that fails is repeated until etcd confirms it or the session is over, as it is
// when a caller waits.
func (l *Locker) giveBack(ctx context.Context, p *position) error {
	passedOn := p.line.passedOn(p)
	l.sender.del(ctx, p, !passedOn)
	if passedOn {
		return nil
	}
	select {
	case <-p.untilSettled():
	case <-ctx.Done():
		if how, _, _ := p.state(); how < removed { // else the deletion has just been confirmed
			return cluster.Ended(ctx, "release "+p.line.resource)
		}
	}
	if how, _, _ := p.state(); how == sessionOver {
		return l.cluster.Unavailable("release "+p.line.resource, errors.New("etcd: session is over"))
	}
	return nil
}

// passedOn reports whether other calls of this process wait for what p held, and lets one
// more of them queue.
func (ln *line) passedOn(p *position) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	others := ln.firstWanted() != nil || len(ln.waiting) > 0
	p.removal = max(p.removal, removing)
	if !ln.locker.cluster.Keys.Mutex { // else the next call writes the same key, which has to be gone; mutant: next-acquisition-does-not-wait-for-the-doubt
		p.leavePlace()
	}
	return others
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
		err := c.locker.clear(try, batch)
		cancel()
		switch {
		case err == nil:
			failures = 0
			for _, p := range batch {
				p.settle(removed)
			}
		case c.locker.sender.shrink(err, len(batch)):
			c.putBack(batch)
		case errors.Is(err, cluster.ErrClientClosed):
			for _, p := range batch {
				p.settle(sessionOver)
			}
		default:
			for _, p := range batch {
				c.failed(p, err)
			}
			c.putBack(batch)
			cluster.Pause(ctx, failures)
			failures++
		}
	}
}

// take returns positions that one Txn can clear: of one session, and with the same left in etcd.
// One whose Txn has failed before goes alone, so that the others don't fail with it. None goes before
// an earlier one of its line, see sender.takeDels. If there are none, the cleaner stops until add starts
// it again.
func (c *cleaner) take() []*position {
	room := c.locker.sender.roomNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch, rest []*position
	for _, p := range c.waiting {
		how, left, tries := p.state()
		switch {
		case how >= removed: // its session is over, or it was added twice; mutant: what-was-removed-is-removed-again
		case len(batch) == 0:
			batch = append(batch, p)
		case len(batch) < room && c.goTogether(batch, p, left, tries) && !inLines(rest, p):
			batch = append(batch, p)
		default:
			rest = append(rest, p)
		}
	}
	c.waiting, c.running = rest, len(batch) > 0
	return batch
}

// goTogether reports whether p can go with the batch.
func (c *cleaner) goTogether(batch []*position, p *position, left leftover, tries int32) bool {
	_, first, firstTries := batch[0].state()
	return p.session == batch[0].session && left == first && tries == 0 && firstTries == 0
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
// no renewal keeps the key alive.
func (c *cleaner) failed(p *position, err error) {
	p.line.mu.Lock()
	p.tries++
	p.line.mu.Unlock()
	if errors.Is(err, cluster.ErrLeaseGone) {
		p.session.End(fence.LossExpired)
	}
	if errors.Is(err, cluster.ErrClientClosed) {
		return
	}
	p.session.EndIfUnneeded() // mutant: what-is-in-doubt-is-kept-alive
	c.locker.cluster.Logger.Warn("a lock key could not be removed yet", "resource", p.line.resource, "error", err)
}

// state is how far the removal of what p has left in etcd has come, what that is, and how often it could not
// be removed.
func (p *position) state() (how removal, left leftover, tries int32) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.removal, p.left, p.tries
}
