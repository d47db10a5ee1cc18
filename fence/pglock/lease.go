package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// lease is one acquisition, and to its caller a lease. It is over when it is released, given up or lost.
type lease struct {
	session.Life[int64]
	locker  *Locker
	value   string
	decided chan struct{} // closed when it owns the resource or is over
	settled chan struct{} // closed when it has been given back

	// The rest is guarded by locker.mu.
	grant  fence.Grant
	calls  int  // of lock_acquire that are unanswered
	doubt  bool // a call of lock_acquire may still arrive
	stored bool // the database has it
	waits  bool
	owner  string // of the resource, while it waits
	owns   bool
	given  bool // what gives it back runs
	hint   bool // another session may wait
}

var _ fence.Lease = (*lease)(nil)

func newHolder(label string) string { return fmt.Sprintf("%s-%016x", label, rand.Uint64()) }

func (l *Locker) newLease(s *session.Session[int64], resource, value string) *lease {
	p := &lease{locker: l, value: value, decided: make(chan struct{}), settled: make(chan struct{})}
	p.Begin(s, &l.mu)
	p.grant.Resource, p.grant.Holder = resource, newHolder(l.cfg.Label)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[p.grant.Holder] = p
	p.calls = 1
	if s.Remaining() == 0 || l.isClosed() { // its end may have been before
		p.finish(errOver)
	}
	return p
}

func (p *lease) resource() string { return p.grant.Resource }
func (p *lease) holder() string   { return p.grant.Holder }

// errOver: the session ended, or the database has forgotten it. Another one may succeed.
var errOver = errors.New("pglock: the session is over")

// errAbandoned is the cause of a lease that its caller doesn't wait for any more.
var errAbandoned = errors.New("pglock: given up")

// acquireAll sends one call for leases of one session, again if the answer is lost, and notes what it says. The caller
// has counted it: what is given up before it begins must wait for it too.
func (l *Locker) acquireAll(ctx context.Context, wait bool, ps ...*lease) {
	s := ps[0].Session
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Context(), cancel)()
	sql := l.database.sql("lock_acquire", s.ID, encodeAll(ps, (*lease).resource), encodeAll(ps, (*lease).holder), encode(ps[0].value), wait)
	var rows [][]string
	var err error
	doubt := false
	for n := range attempts {
		if n > 0 {
			session.Pause(ctx, n)
		}
		rows, err = l.database.onPool(ctx, sql)
		doubt = doubt || inDoubt(err)
		expired := err == nil && len(rows) > 0 && rows[len(rows)-1][5] == "t"
		if expired {
			_ = l.endExpired(ctx)
		}
		if !inDoubt(err) && (!expired || wait) || ctx.Err() != nil {
			break
		}
	}
	switch {
	case err != nil:
		err = unavailable("acquire "+ps[0].resource(), err)
	case len(rows) == 0:
		err = errOver
		s.End(fence.LossExpired)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range ps {
		p.calls--
		p.doubt = p.doubt || doubt
		switch {
		case err != nil:
			if !p.owns && !p.waits { // else the next look tries again
				p.finish(err)
			}
		case i < len(rows) && rows[i][1] != "":
			p.stored = true
			p.own(rows[i][1:])
		case i < len(rows):
			p.owner = decode(rows[i][4])
			p.stored, p.waits = p.stored || wait, wait && p.Over() == nil
			fallthrough
		default:
			if !wait {
				p.finish(&fence.LockedError{Resource: p.resource(), Holder: p.owner})
			}
		}
		if p.Over() != nil && p.calls == 0 {
			p.giveBack()
		}
	}
	l.signal() // a notification may have come before the answer
}

// attempts bounds the tries of one call.
const attempts = 4

func (p *lease) granted(row []string) {
	p.locker.mu.Lock()
	defer p.locker.mu.Unlock()
	p.own(row)
}

// own notes a grant: its epoch, its token, and whether another session waits. Callers hold locker.mu.
func (p *lease) own(row []string) {
	if p.owns || p.Over() != nil {
		return
	}
	epoch, _ := strconv.ParseInt(row[0], 10, 64)
	token, _ := strconv.ParseInt(row[1], 10, 64)
	p.grant.Epoch, p.grant.Token = epoch, fence.Token(token)
	p.owns, p.waits = true, false
	p.hint = row[2] == "t"
	close(p.decided)
}

// Acquire implements fence.Locker. It returns ctx's error and cause; a *fence.InvalidGrantError for a bad name;
// fence.ErrClosed; else a *fence.UnavailableError, whose Reason says what to fix. If ctx ends behind another
// acquisition, the error is also a *fence.LockedError; if its deadline passes while the database doesn't answer, a
// *fence.UnavailableError.
func (l *Locker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	p, err := l.acquire(ctx, true, "", resource)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// TryAcquire implements fence.Locker. Other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, resource string) (fence.Lease, error) {
	p, err := l.acquire(ctx, false, "", resource)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (l *Locker) acquire(ctx context.Context, wait bool, value, resource string) (*lease, error) {
	held, taken, err := l.try(ctx, wait, value, resource)
	if err != nil || taken != nil {
		return nil, cmp.Or(err, taken)
	}
	return held[0], nil
}

// TryAcquireAll implements fence.Locker, in one transaction. Its errors are those of Acquire.
func (l *Locker) TryAcquireAll(ctx context.Context, resources ...string) ([]fence.Lease, error) {
	held, _, err := l.try(ctx, false, "", resources...)
	leases := make([]fence.Lease, len(held))
	for i, p := range held {
		leases[i] = p
	}
	return leases, err
}

func (l *Locker) try(ctx context.Context, wait bool, value string, resources ...string) (held []*lease, taken, err error) {
	for _, r := range resources {
		if err := fence.ValidateResource(r); err != nil {
			return nil, nil, err
		}
	}
	if len(resources) == 0 {
		return nil, nil, nil
	}
	op := "acquire " + resources[0]
	for range attempts {
		switch {
		case l.isClosed():
			return nil, nil, errClosed
		case ctx.Err() != nil:
			return nil, nil, session.Ended(ctx, "pglock: "+op)
		}
		var s *session.Session[int64]
		if s, err = l.sessions.Live(ctx); errors.Is(err, fence.ErrClosed) {
			return nil, nil, err
		} else if err != nil {
			return nil, nil, failed(ctx, op, err)
		}
		if held, taken, err = l.attempt(ctx, s, wait, value, resources); !errors.Is(err, errOver) {
			return held, taken, err
		}
	}
	if l.isClosed() {
		return nil, nil, errClosed
	}
	return nil, nil, &fence.UnavailableError{Op: op, Reason: fence.QueueLost, Err: err}
}

// attempt returns the leases that it got, and why not the first that it did not.
func (l *Locker) attempt(ctx context.Context, s *session.Session[int64], wait bool, value string, resources []string) (held []*lease, taken, err error) {
	ps := make([]*lease, len(resources))
	for i, r := range resources {
		ps[i] = l.newLease(s, r, value)
	}
	l.tasks.Start(func(ctx context.Context) { l.acquireAll(ctx, wait, ps...) })
	for _, p := range ps {
		select {
		case <-p.decided:
		case <-ctx.Done():
		}
		if taken, err = p.outcome(ctx); taken != nil || err != nil {
			break
		}
		held = append(held, p)
	}
	if err == nil {
		return held, taken, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range ps {
		p.finish(errAbandoned)
		if p.calls == 0 {
			p.giveBack()
		}
	}
	return nil, nil, err
}

// outcome is nil if p owns its resource; else taken says who does, or err why p is over.
func (p *lease) outcome(ctx context.Context) (taken, err error) {
	l := p.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	var loss *fence.LeaseLostError
	cause := p.Over()
	switch {
	case cause == nil && p.owns:
		if p.Session.Remaining() == 0 { // and the timer has yet to say so
			return nil, errOver
		}
		return nil, nil
	case errors.As(cause, &loss) && loss.Reason == fence.LossClosed:
		return nil, errClosed
	case errors.As(cause, &loss):
		return nil, errOver
	case errors.Is(cause, fence.ErrLocked):
		return cause, nil
	case cause != nil:
		return nil, cause
	case p.waits:
		return nil, fmt.Errorf("%w: %w", &fence.LockedError{Resource: p.resource(), Holder: p.owner}, session.Ended(ctx, "pglock: "+"acquire "+p.resource()))
	}
	return nil, failed(ctx, "acquire "+p.resource(), ctx.Err())
}

// Grant implements fence.Lease.
func (p *lease) Grant() fence.Grant { return p.grant }

// AfterContended implements fence.Lease.
func (p *lease) AfterContended(f func()) (stop func() bool) {
	return p.Watch(f, func() {
		if p.hint {
			p.locker.due[p.holder()] = true
			p.locker.signal()
		}
	})
}

func (p *lease) loss(reason fence.LossReason) error {
	return p.Loss(p.grant, reason, func(err error) error { return unavailable("renew the session", err) })
}

// finish ends p, if it isn't over. Callers hold locker.mu.
func (p *lease) finish(cause error) {
	if !p.Finish(cause) {
		return
	}
	p.waits = false
	delete(p.locker.leases, p.holder())
	delete(p.locker.due, p.holder())
	if !p.owns {
		close(p.decided)
	}
}

// giveBack gives up what the database may have of p, which is over, once all calls for it have an answer. Callers
// hold locker.mu.
func (p *lease) giveBack() {
	l, s := p.locker, p.Session
	if p.given || !p.stored && !p.doubt {
		return
	}
	p.given = true
	sql := l.database.sql("lock_release", s.ID, encode(p.resource()), encode(p.holder()), p.doubt)
	l.tasks.Start(func(context.Context) {
		for n := 0; s.Context().Err() == nil; n++ {
			if _, err := l.database.onPool(s.Context(), sql); err == nil {
				close(p.settled)
				return
			}
			session.Pause(s.Context(), n)
		}
	})
}

// Release implements fence.Lease. It is repeated until the database confirms it or the session is over.
func (p *lease) Release(ctx context.Context) error {
	l := p.locker
	l.mu.Lock()
	if p.Over() != nil {
		l.mu.Unlock()
		return nil
	}
	p.finish(fence.ErrReleased)
	if p.calls == 0 {
		p.giveBack()
	}
	l.mu.Unlock()
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	select {
	case <-p.settled:
		return nil
	case <-ctx.Done():
		return session.Ended(ctx, "pglock: "+"release "+p.resource())
	case <-p.Session.Context().Done():
		return unavailable("release "+p.resource(), errOver)
	}
}
