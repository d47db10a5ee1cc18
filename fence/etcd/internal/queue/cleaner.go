package queue

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/background"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// cleaner removes what positions have left in etcd: keys whose release failed, and keys of
// acquisitions that were given up, or are in doubt. It sends one request at a time, for many
// positions: after etcd was slow there may be thousands, which must not delay renewals. It
// repeats a request until it succeeds or the session is over, or until the client is closed:
// then this process makes no more keys, and the session expires in etcd.
type cleaner struct {
	queues *Queues

	mu      sync.Mutex
	waiting []*Position
	running bool
}

// add takes p, which is over and has left something in etcd.
func (c *cleaner) add(p *Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, p)
	if !c.running {
		c.running = true
		c.queues.cluster.Tasks.Start(c.run)
	}
}

// run cleans until nothing is left, or ctx ends.
func (c *cleaner) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		batch := c.take()
		if len(batch) == 0 {
			return
		}
		try, cancel := context.WithTimeout(ctx, c.queues.cluster.RequestTimeout)
		err := c.queues.clear(try, batch)
		cancel()
		switch {
		case err == nil:
			failures = 0
			for _, p := range batch {
				p.settle(true)
			}
		case c.queues.sender.shrink(err, len(batch)):
			c.putFirst(batch)
		case errors.Is(err, cluster.ErrClientClosed):
			for _, p := range batch {
				p.settle(false)
			}
		default:
			for _, p := range batch {
				c.failed(p, err)
			}
			c.putBack(batch)
			background.Pause(ctx, failures, nil)
			failures++
		}
	}
}

// take returns positions that one Txn can clear: of one session, and with the same left in etcd.
// One whose Txn has failed before goes alone, so that the others don't fail with it. None goes before
// an earlier one of its line, see sender.takeDels. If there are none, the cleaner stops until add starts
// it again.
func (c *cleaner) take() []*Position {
	room := c.queues.sender.roomNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch, rest []*Position
	for _, p := range c.waiting {
		left, tries, settled := p.leftover()
		switch {
		case settled: // its session is over, or it was added twice; mutant: what-was-removed-is-removed-again
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
func (c *cleaner) goTogether(batch []*Position, p *Position, left leftover, tries int32) bool {
	first, firstTries, _ := batch[0].leftover()
	return p.session == batch[0].session && left == first && tries == 0 && firstTries == 0
}

// putFirst lets the batch go next, in smaller ones.
func (c *cleaner) putFirst(batch []*Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(batch, c.waiting...)
}

// putBack lets those of other lines go first.
func (c *cleaner) putBack(batch []*Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var others, behind []*Position
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
func inLines(ps []*Position, p *Position) bool {
	return slices.ContainsFunc(ps, func(other *Position) bool { return other.line == p.line })
}

// failed notes a request that failed. It ends the session if nothing else needs it, so that
// no renewal keeps the key alive.
func (c *cleaner) failed(p *Position, err error) {
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
	c.queues.cluster.Logger.Warn("a lock key could not be removed yet", "resource", p.line.resource, "error", err)
}

// leftover is what p has left in etcd, and how often it could not be removed.
func (p *Position) leftover() (left leftover, tries int32, settled bool) {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.left, p.tries, p.isSettled
}
