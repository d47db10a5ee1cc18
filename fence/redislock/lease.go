package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// lease is one acquisition, and to its caller a lease. locker.mu guards what changes.
type lease struct {
	session.Life[string]
	locker  *Locker
	settled chan struct{} // closed when its key is gone

	grant  fence.Grant
	owner  string // while it waits
	owns   bool
	asking bool // a request may write the key
	left   bool // the key may be there
	ended  time.Time
}

var _ fence.Lease = (*lease)(nil)

func (l *Locker) newLease(s *session.Session[string], resource string) *lease {
	p := &lease{
		locker: l, settled: make(chan struct{}), asking: true,
		grant: fence.Grant{Resource: resource, Epoch: l.cfg.Epoch, Holder: newHolder(l.cfg.Label)},
	}
	p.Begin(s, &l.mu)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[p] = struct{}{}
	if s.Remaining() == 0 { // its end may have been before
		p.finish(p.loss(fence.LossDeadline))
	}
	return p
}

// own is what the lock's value begins with.
func (p *lease) own() string { return p.locker.process + "\n" + p.grant.Holder + "\n" }

// attempts bounds the tries of a request that isn't answered.
const attempts = 3

// ask asks for the lock until p has it, is over, or may not wait.
func (p *lease) ask(ctx context.Context, wait bool) error {
	defer p.asked()
	l := p.locker
	lock, token, waits := l.keys(p.grant.Resource)
	mark := time.Duration(0)
	if wait {
		mark = 5 * l.cfg.PollInterval
	}
	failures := 0
	for {
		l.mu.Lock()
		freed, over := l.freed, p.Over()
		l.mu.Unlock()
		if over != nil {
			return over
		}
		answer, err := l.eval(ctx, acquireScript, []string{lock, token, waits}, l.process, p.grant.Holder, l.cfg.TTL.Milliseconds(), mark.Milliseconds())
		got, _ := answer.([]any)
		switch {
		case err != nil:
			p.mayHaveLeft()
			if failures++; failures == attempts || ctx.Err() != nil {
				return unavailable("acquire "+p.grant.Resource, err)
			}
		case len(got) == 2 && got[0] != "":
			return p.granted(got[0].(string))
		default:
			failures = 0
			p.heldBy(got[1].(string))
			if !wait {
				return &fence.LockedError{Resource: p.grant.Resource, Holder: p.owner}
			}
		}
		select {
		case <-time.After(l.cfg.PollInterval/2 + rand.N(l.cfg.PollInterval)):
		case <-freed:
		case <-p.Done():
		case <-ctx.Done():
		}
	}
}

func (p *lease) granted(token string) error {
	number, err := strconv.ParseInt(token, 10, 64)
	if err != nil || number < 1 || fence.Token(number) > fence.MaxToken {
		p.mayHaveLeft()
		return unavailable("acquire "+p.grant.Resource, errors.New("redislock: the counter in Redis is no token: "+strconv.Quote(token)))
	}
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	if p.left = true; p.Over() != nil {
		return p.Over()
	}
	p.grant.Token, p.owns = fence.Token(number), true
	return nil
}

func (p *lease) mayHaveLeft() {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	p.left = true
}

func (p *lease) heldBy(owner string) {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	p.owner = owner
}

// asked notes that no request is under way, and gives back what p has if that is over.
func (p *lease) asked() {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	p.asking = false
	if p.Over() != nil {
		p.giveBack(context.Background()) // the session's end may have been before
	}
}

var errAbandoned = errors.New("redislock: given up")

// giveUp ends p for its caller, and returns who holds the resource, if another does.
func (p *lease) giveUp() error {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	p.finish(errAbandoned)
	if p.owner == "" {
		return nil
	}
	return &fence.LockedError{Resource: p.grant.Resource, Holder: p.owner}
}

// finish ends p, if it isn't over. Callers hold locker.mu.
func (p *lease) finish(cause error) {
	if !p.Finish(cause) {
		return
	}
	p.ended = time.Now()
	if !p.asking {
		p.giveBack(p.Session.Context())
	}
}

// giveBack deletes the key that p may have, until Redis confirms it, it has expired, or ctx ends: when the session is
// over, Revoke does it. Callers hold locker.mu.
func (p *lease) giveBack(ctx context.Context) {
	if !p.left {
		p.gone()
		return
	}
	l := p.locker
	l.tasks.Start(func(tasks context.Context) {
		ctx, cancel := context.WithTimeout(ctx, l.cfg.TTL)
		defer cancel()
		defer context.AfterFunc(tasks, cancel)()
		for n := 0; ctx.Err() == nil; n++ {
			if _, err := l.evalEach(ctx, []*lease{p}, releaseScript); err == nil {
				l.forget([]*lease{p})
				return
			}
			session.Pause(ctx, n)
		}
	})
}

// gone notes that p has no key, and wakes those of this process that wait. Callers hold locker.mu.
func (p *lease) gone() {
	if _, known := p.locker.leases[p]; known {
		delete(p.locker.leases, p)
		close(p.settled)
		close(p.locker.freed)
		p.locker.freed = make(chan struct{})
	}
}

func (p *lease) loss(reason fence.LossReason) error {
	return p.Loss(p.grant, reason, func(err error) error { return unavailable("renew the locks", err) })
}

func (p *lease) Grant() fence.Grant { return p.grant }

func (p *lease) AfterContended(f func()) (stop func() bool) {
	return p.Watch(f, func() {
		select {
		case p.locker.watched <- struct{}{}:
		default:
		}
	})
}

// Release implements fence.Lease. It is repeated until Redis confirms it, or the lock must have expired.
func (p *lease) Release(ctx context.Context) error {
	p.locker.mu.Lock()
	over := p.Over() != nil
	p.finish(fence.ErrReleased)
	p.locker.mu.Unlock()
	if over {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	op := "release " + p.grant.Resource
	select {
	case <-p.settled:
		return nil
	case <-ctx.Done():
		return session.Ended(ctx, "redislock: "+op)
	case <-p.Session.Context().Done():
		return unavailable(op, errOver)
	}
}
