package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

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
	asking bool   // a call of lock_acquire is unanswered
	doubt  int64  // of its calls those with lower numbers may still arrive
	stored bool   // the database has it
	waits  bool   // behind the resource's owner
	owner  string // whose holder this is
	owns   bool
	hint   bool // another session may wait
}

var _ fence.Lease = (*lease)(nil)

func (l *Locker) newLease(s *session.Session[int64], resource, value string) *lease {
	p := &lease{locker: l, value: value, decided: make(chan struct{}), settled: make(chan struct{}), asking: true}
	p.Begin(p, s, &l.mu)
	p.grant.Resource, p.grant.Holder = resource, session.NewHolder(l.cfg.Label)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[p.grant.Holder] = p
	if s.Remaining() == 0 { // its end may have been before
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

func ended(ctx context.Context, op string) error { return session.Ended(ctx, "pglock: "+op) }

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// state is a row of lock_state.
type state []string

func (s state) owns() bool          { return len(s) > 0 && s[0] != "" }
func (s state) contended() bool     { return s[2] == "t" }
func (s state) left() time.Duration { return time.Duration(number(s[4])) * time.Millisecond }
func (s state) ownerIsOver() bool   { return s[4] == "" }
func (s state) expired() bool       { return !s.owns() && !s.ownerIsOver() && s.left() <= 0 }
func (s state) waits() bool         { return s[5] == "t" }

// acquireAll sends one call for leases of one session, again if the answer is lost, and notes what it says. The caller
// has noted that they ask: what is given up before it begins must wait for it too.
func (l *Locker) acquireAll(ctx context.Context, wait bool, ps ...*lease) {
	s := ps[0].Session
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Context(), cancel)()
	var rows [][]string
	var err error
	doubt := int64(0)
	for n := range attempts {
		if n > 0 {
			session.Pause(ctx, n)
		}
		var call int64
		call, rows, err = l.callAcquire(ctx, wait, ps)
		if inDoubt(err) {
			doubt = call + 1
		}
		expired := len(rows) > 0 && state(rows[len(rows)-1][1:]).expired()
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
		var has state
		if i < len(rows) {
			has = rows[i][1:]
			p.owner = decode(has[3])
		}
		p.asking, p.doubt, p.stored = false, max(p.doubt, doubt), p.stored || has.owns() || err == nil && wait
		switch {
		case p.Over() != nil:
			p.giveBack()
		case err != nil && p.waits: // the next look tries again
		case err != nil:
			p.finish(err)
		case has.owns():
			p.own(has)
		case wait:
			p.waits = true
			l.lookAt(max(has.left(), busyPause))
		default:
			p.finish(&fence.LockedError{Resource: p.resource(), Holder: p.owner})
		}
	}
	l.signal() // a notification may have come before the answer
}

// attempts bounds the tries of one call.
const attempts = 4

// busyPause is how long a call waits at least before it asks again for a resource without an owner, whose fence a
// transaction is moving.
const busyPause = 20 * time.Millisecond

// callAcquire numbers a call of lock_acquire, which counts as unanswered until it returns.
func (l *Locker) callAcquire(ctx context.Context, wait bool, ps []*lease) (call int64, rows [][]string, err error) {
	l.mu.Lock()
	l.lastCall++
	call = l.lastCall
	l.calls[call] = true
	l.mu.Unlock()
	rows, err = l.database.call(ctx, "lock_acquire", ps[0].Session.ID, call, encodeAll(ps, (*lease).resource), encodeAll(ps, (*lease).holder), encode(ps[0].value), wait)
	l.mu.Lock()
	delete(l.calls, call)
	l.mu.Unlock()
	return call, rows, err
}

// firstCall is the lowest number of a call whose answer counts.
func (l *Locker) firstCall() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Min(append(slices.Collect(maps.Keys(l.calls)), l.lastCall+1))
}

// learn notes what a look has found of p, which waits, and reports whether the session in its way has expired. Callers
// hold locker.mu.
func (p *lease) learn(has state) (expired bool) {
	l := p.locker
	switch {
	case has.owns():
		p.own(has)
	case has.ownerIsOver() || !has.waits(): // acquiring again puts that right
		p.asking = true
		l.tasks.Start(func(ctx context.Context) { l.acquireAll(ctx, true, p) })
	case has.expired():
		return true
	default:
		l.lookAt(has.left())
	}
	return false
}

// own notes a grant. Callers hold locker.mu.
func (p *lease) own(has state) {
	p.grant.Epoch, p.grant.Token = number(has[0]), fence.Token(number(has[1]))
	p.owns, p.waits, p.hint = true, false, has.contended()
	close(p.decided)
}

// Acquire implements fence.Locker. It returns ctx's error and cause; a *fence.InvalidGrantError for a bad name;
// fence.ErrClosed; else a *fence.UnavailableError, whose Reason says what to fix. If ctx ends behind another
// acquisition, the error is also a *fence.LockedError; if its deadline passes while the database doesn't answer, a
// *fence.UnavailableError.
func (l *Locker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	return asLease(l.acquire(ctx, true, "", resource))
}

// TryAcquire implements fence.Locker. Other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, resource string) (fence.Lease, error) {
	return asLease(l.acquire(ctx, false, "", resource))
}

func asLease(p *lease, err error) (fence.Lease, error) {
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
		case l.closing.IsClosed():
			return nil, nil, errClosed
		case ctx.Err() != nil:
			return nil, nil, ended(ctx, op)
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
	if l.closing.IsClosed() {
		return nil, nil, errClosed
	}
	return nil, nil, &fence.UnavailableError{Call: op, Reason: fence.QueueLost, Err: err}
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
		return nil, fmt.Errorf("%w: %w", &fence.LockedError{Resource: p.resource(), Holder: p.owner}, ended(ctx, "acquire "+p.resource()))
	}
	return nil, failed(ctx, "acquire "+p.resource(), ctx.Err())
}

// Grant implements fence.Lease.
func (p *lease) Grant() fence.Grant { return p.grant }

// AfterContended implements fence.Lease.
func (p *lease) AfterContended(f func()) (stop func() bool) {
	return p.Watch(f, func() {
		if p.hint {
			p.locker.due[p] = true
			p.locker.signal()
		}
	})
}

// Lose implements session.Owner.
func (p *lease) Lose(reason fence.LossReason) {
	p.finish(p.Loss(p.grant, reason, func(err error) error { return unavailable("renew the session", err) }))
}

// finish ends p, if it isn't over. Callers hold locker.mu.
func (p *lease) finish(cause error) {
	if !p.Finish(cause) {
		return
	}
	p.waits = false
	delete(p.locker.leases, p.holder())
	delete(p.locker.due, p)
	if !p.owns {
		close(p.decided)
	}
	if !p.asking {
		p.giveBack()
	}
}

// giveBack gives up what the database may have of p, which is over and asks for nothing more. Should a call of its own
// still arrive, it must do nothing; for that all calls from before have to be over too. Callers hold locker.mu.
func (p *lease) giveBack() {
	l, ctx, first := p.locker, p.Session.Context(), int64(0)
	if !p.stored && p.doubt == 0 || ctx.Err() != nil {
		return
	}
	l.tasks.Start(func(context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			if p.doubt > 0 {
				first = l.firstCall()
			}
			_, err := l.database.call(ctx, "lock_release", p.Session.ID, first, encode(p.resource()), encode(p.holder()))
			if err == nil && first >= p.doubt {
				close(p.settled)
				return
			}
			session.Pause(ctx, n)
		}
	})
}

// Release implements fence.Lease. It is repeated until the database confirms it or the session is over.
func (p *lease) Release(ctx context.Context) error {
	l := p.locker
	l.mu.Lock()
	over := p.Over() != nil
	p.finish(fence.ErrReleased)
	l.mu.Unlock()
	if over {
		return nil
	}
	if ctx == nil { // a panic here would keep the resource taken until Close
		ctx = context.Background()
	}
	select {
	case <-p.settled:
		return nil
	case <-ctx.Done():
		return ended(ctx, "release "+p.resource())
	case <-p.Session.Context().Done():
		return unavailable("release "+p.resource(), errOver)
	}
}
