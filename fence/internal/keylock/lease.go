package keylock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// lease is one acquisition, and to its caller a lease. Its session is its own: its one key.
type lease struct {
	session.Life[struct{}]
	locker  *Locker
	mark    time.Duration // for which an unsuccessful request marks the resource as waited for
	freed   chan struct{} // holds a signal that the resource may be free
	settled chan struct{} // closed when its key is gone, or must have expired
	failed  error         // why it isn't known to be gone; set before settled is closed

	watching atomic.Bool

	// The rest is guarded by locker.mu.
	grant  fence.Grant
	value  string // that the key has, or gets with the next renewal
	owner  string // if that is another
	asking bool   // a request may write the key
	left   bool   // the key may be there
}

var _ fence.Lease = (*lease)(nil)

func (l *Locker) newLease(resource string, wait bool, value string) (*lease, error) {
	p := &lease{
		locker: l, value: value, freed: make(chan struct{}, 1), settled: make(chan struct{}), asking: true,
		grant: fence.Grant{Resource: resource, Epoch: l.cfg.Epoch, Holder: session.NewHolder(l.cfg.Label)},
	}
	if wait {
		p.mark = 5 * l.cfg.PollInterval
	}
	p.Begin(p, nil, &l.mu)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing.IsClosed() {
		return nil, errClosed
	}
	l.leases[resource] = append(l.leases[resource], p)
	return p, nil
}

func (p *lease) request() Request {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	return Request{p.grant.Resource, p.locker.process, p.grant.Holder, p.locker.cfg.TTL, p.mark, p.value}
}

// kept is the session.LeaseService of one lease.
type kept struct{ *lease }

func (p kept) Grant(ctx context.Context, ttl time.Duration) (none struct{}, granted time.Duration, err error) {
	l := p.locker
	token, err := within(ctx, l, func(ctx context.Context) (fence.Token, error) { return l.service.Acquire(ctx, p.request()) })
	l.mu.Lock()
	defer l.mu.Unlock()
	var locked *fence.LockedError
	if errors.As(err, &locked) {
		_, queues := l.service.(Queue)
		p.owner, p.left = locked.Holder, p.left || queues
		return none, 0, err
	}
	p.left = true
	if err == nil && (token < 1 || token > fence.MaxToken) {
		err = fmt.Errorf("%s: the service's count is no token: %d", l.cfg.Name, token)
	}
	p.grant.Token = token
	return none, ttl, err
}

func (p kept) KeepAlive(ctx context.Context, _ struct{}) (time.Duration, error) {
	l := p.locker
	renewed, err := within(ctx, l, func(ctx context.Context) (bool, error) { return l.service.Renew(ctx, p.request(), p.grant.Token) })
	if err != nil || renewed {
		return l.cfg.TTL, err
	}
	return 0, nil
}

// attempts bounds the tries of a request that isn't answered.
const attempts = 3

// ask asks for the lock until p has it, is over, or may not wait.
func (p *lease) ask(ctx context.Context) error {
	defer p.asked()
	cfg := p.locker.cfg
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	for failures := 0; p.Err() == nil; {
		s, err := session.Start(ctx, kept{p}, cfg.TTL, cfg.RequestTimeout, p.sessionEnded)
		switch {
		case err == nil:
			return p.granted(s)
		case errors.Is(err, fence.ErrLocked) && p.mark == 0:
			return err
		case errors.Is(err, fence.ErrLocked):
			failures = 0
			p.watch(watch)
		default:
			if failures++; failures == attempts || ctx.Err() != nil {
				return p.locker.unavailable("acquire "+p.grant.Resource, err)
			}
		}
		select {
		case <-time.After(cfg.PollInterval/2 + rand.N(cfg.PollInterval)):
		case <-p.freed:
		case <-p.Done():
		case <-ctx.Done():
		}
	}
	return p.Err()
}

func (p *lease) granted(s *session.Session[struct{}]) error {
	p.locker.mu.Lock()
	p.Session = s
	over := p.Over()
	p.locker.mu.Unlock()
	if over != nil {
		s.End(fence.LossClosed)
		return over
	}
	p.locker.tasks.Start(func(context.Context) { s.Run() })
	return nil
}

// asked notes that no request is under way, and gives back what p has if that is over.
func (p *lease) asked() {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	p.asking = false
	if p.Over() != nil {
		p.giveBack()
	}
}

func (p *lease) sessionEnded(s *session.Session[struct{}], reason fence.LossReason) {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	p.Session = s // it may have ended before it was known
	p.Lose(reason)
}

// givenUp is the error of a call that err has ended, perhaps behind another holder.
func (p *lease) givenUp(err error) error {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	if p.owner != "" {
		return fmt.Errorf("%w: %w", &fence.LockedError{Resource: p.grant.Resource, Holder: p.owner}, err)
	}
	return err
}

// Lose implements session.Owner.
func (p *lease) Lose(reason fence.LossReason) {
	p.end(p.Loss(p.grant, reason, func(err error) error { return p.locker.unavailable("renew "+p.grant.Resource, err) }))
}

// end ends p and its session, and reports whether p has not been over. Callers hold locker.mu.
func (p *lease) end(cause error) bool {
	if !p.Finish(cause) {
		return false
	}
	if s := p.Session; s != nil {
		p.locker.tasks.Start(func(context.Context) { s.End(fence.LossClosed) }) // which finds p over
	}
	if !p.asking {
		p.giveBack()
	}
	return true
}

func (p *lease) finish(cause error) bool {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	return p.end(cause)
}

// giveBack deletes the key that p may have, until the service confirms it or it must have expired, if it expires at all.
// Callers hold locker.mu.
func (p *lease) giveBack() {
	if !p.left {
		p.gone(nil)
		return
	}
	l := p.locker
	l.tasks.Start(func(tasks context.Context) {
		ctx, cancel := context.WithTimeout(tasks, l.cfg.TTL)
		defer cancel()
		if _, lasts := l.service.(Lasting); lasts {
			ctx = tasks
		}
		release := func(ctx context.Context) (none struct{}, err error) { return none, l.service.Release(ctx, p.request()) }
		_, err := within(ctx, l, release)
		for n := 0; err != nil && ctx.Err() == nil; n++ {
			session.Pause(ctx, n)
			_, err = within(ctx, l, release)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		p.gone(err)
	})
}

// gone notes that p has no key, and wakes who has waited longest in this process. Callers hold locker.mu.
func (p *lease) gone(failed error) {
	l, r := p.locker, p.grant.Resource
	p.failed = failed
	close(p.settled)
	others := slices.DeleteFunc(l.leases[r], func(other *lease) bool { return other == p })
	if l.leases[r] = others; len(others) == 0 {
		delete(l.leases, r)
	}
	if other := l.oldest(r); other != nil && (p.left || p.mark > 0) {
		other.wake()
	}
}

// oldest is the one that has waited longest in this process. Callers hold locker.mu.
func (l *Locker) oldest(resource string) *lease {
	for _, p := range l.leases[resource] {
		if p.mark > 0 && p.asking {
			return p
		}
	}
	return nil
}

func (p *lease) wake() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// watch lets a service that can do so tell when to ask again, until ctx ends. Without places in a queue, one call of the
// process is enough. Polling makes up for a watch that fails.
func (p *lease) watch(ctx context.Context) {
	w, is := p.locker.service.(Watcher)
	_, queues := w.(Queue)
	p.locker.mu.Lock()
	next := queues || p.locker.oldest(p.grant.Resource) == p
	p.locker.mu.Unlock()
	if !is || !next || !p.watching.CompareAndSwap(false, true) {
		return
	}
	p.locker.tasks.Start(func(context.Context) {
		defer p.watching.Store(false)
		w.Watch(ctx, p.request(), p.wake)
	})
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

// Release implements fence.Lease. It is repeated until the service confirms it, or the lock must have expired.
func (p *lease) Release(ctx context.Context) error {
	if !p.finish(fence.ErrReleased) {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	op := "release " + p.grant.Resource
	patience, cancel := p.locker.patience(ctx)
	defer cancel()
	select {
	case <-p.settled:
		if p.failed != nil {
			return p.locker.unavailable(op, p.failed)
		}
		return nil
	case <-patience.Done():
		if ctx.Err() == nil {
			return p.locker.unavailable(op, patience.Err())
		}
		return session.Ended(ctx, p.locker.cfg.Name+": "+op)
	}
}
