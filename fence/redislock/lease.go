package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// lease is one acquisition, and to its caller a lease. Its session is its own: its one key.
type lease struct {
	session.Life[struct{}]
	locker  *Locker
	mark    time.Duration // for which an unsuccessful request marks the resource as waited for
	freed   chan struct{} // holds a signal that this process has given the resource back
	settled chan struct{} // closed when its key is gone, or must have expired
	failed  error         // why it isn't known to be gone; set before settled is closed

	// The rest is guarded by locker.mu.
	grant  fence.Grant
	owner  string // if that is another
	asking bool   // a request may write the key
	left   bool   // the key may be there
}

var _ fence.Lease = (*lease)(nil)

func (l *Locker) newLease(resource string, wait bool) (*lease, error) {
	p := &lease{
		locker: l, freed: make(chan struct{}, 1), settled: make(chan struct{}), asking: true,
		grant: fence.Grant{Resource: resource, Epoch: l.cfg.Epoch, Holder: newHolder(l.cfg.Label)},
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

// service is the session.LeaseService of one lease.
type service struct{ *lease }

func (p service) Grant(ctx context.Context, ttl time.Duration) (none struct{}, granted time.Duration, err error) {
	l := p.locker
	lock, token, waits := l.keys(p.grant.Resource)
	answer, err := l.eval(ctx, acquireScript, []string{lock, token, waits}, l.process, p.grant.Holder, ttl.Milliseconds(), p.mark.Milliseconds())
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		p.left = true
		return none, 0, err
	}
	got := answer.([]any)
	if p.owner = got[1].(string); got[0] == "" {
		return none, 0, &fence.LockedError{Resource: p.grant.Resource, Holder: p.owner}
	}
	p.left = true
	number, err := strconv.ParseInt(got[0].(string), 10, 64)
	if err != nil || number < 1 || fence.Token(number) > fence.MaxToken {
		return none, 0, fmt.Errorf("redislock: the counter in Redis is no token: %q", got[0])
	}
	p.grant.Token = fence.Token(number)
	return none, ttl, nil
}

func (p service) KeepAlive(ctx context.Context, _ struct{}) (time.Duration, error) {
	renewed, err := p.evalOwn(ctx, renewScript, p.locker.cfg.TTL.Milliseconds())
	if err != nil || renewed == int64(1) {
		return p.locker.cfg.TTL, err
	}
	return 0, nil
}

// evalOwn sends a script that does something only if the key is p's.
func (p *lease) evalOwn(ctx context.Context, script string, args ...any) (any, error) {
	lock, _, _ := p.locker.keys(p.grant.Resource)
	return p.locker.eval(ctx, script, []string{lock}, append([]any{p.locker.process + "\n" + p.grant.Holder + "\n"}, args...)...)
}

// attempts bounds the tries of a request that isn't answered.
const attempts = 3

// ask asks for the lock until p has it, is over, or may not wait.
func (p *lease) ask(ctx context.Context) error {
	defer p.asked()
	cfg := p.locker.cfg
	for failures := 0; p.Err() == nil; {
		s, err := session.Start(ctx, service{p}, cfg.TTL, cfg.requestTimeout, p.sessionEnded)
		switch {
		case err == nil:
			return p.granted(s)
		case errors.Is(err, fence.ErrLocked) && p.mark == 0:
			return err
		case errors.Is(err, fence.ErrLocked):
			failures = 0
		default:
			if failures++; failures == attempts || ctx.Err() != nil {
				return unavailable("acquire "+p.grant.Resource, err)
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

// Lose implements session.Owner. Its caller ends the session.
func (p *lease) Lose(reason fence.LossReason) {
	p.end(p.Loss(p.grant, reason, func(err error) error { return unavailable("renew "+p.grant.Resource, err) }))
}

// end ends p, and reports whether it has not been over. Callers hold locker.mu.
func (p *lease) end(cause error) bool {
	first := p.Finish(cause)
	if first && !p.asking {
		p.giveBack()
	}
	return first
}

func (p *lease) lose(reason fence.LossReason) {
	p.locker.mu.Lock()
	p.Lose(reason)
	s := p.Session
	p.locker.mu.Unlock()
	if s != nil {
		s.End(reason) // which finds p over
	}
}

// finish ends p and its session, and reports whether p has not been over.
func (p *lease) finish(cause error) bool {
	p.locker.mu.Lock()
	first, s := p.end(cause), p.Session
	p.locker.mu.Unlock()
	if first && s != nil {
		s.End(fence.LossClosed) // which finds p over
	}
	return first
}

// giveBack deletes the key that p may have, until Redis confirms it or it must have expired. Callers hold locker.mu.
func (p *lease) giveBack() {
	if !p.left {
		p.gone(nil)
		return
	}
	l := p.locker
	l.tasks.Start(func(tasks context.Context) {
		ctx, cancel := context.WithTimeout(tasks, l.cfg.TTL)
		defer cancel()
		_, err := p.evalOwn(ctx, releaseScript)
		for n := 0; err != nil && ctx.Err() == nil; n++ {
			session.Pause(ctx, n)
			_, err = p.evalOwn(ctx, releaseScript)
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
	for _, other := range others {
		if other.mark > 0 && other.asking && p.left {
			select {
			case other.freed <- struct{}{}:
			default:
			}
			break
		}
	}
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
	if !p.finish(fence.ErrReleased) {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	op := "release " + p.grant.Resource
	select {
	case <-p.settled:
		if p.failed != nil {
			return unavailable(op, p.failed)
		}
		return nil
	case <-ctx.Done():
		return session.Ended(ctx, "redislock: "+op)
	}
}
