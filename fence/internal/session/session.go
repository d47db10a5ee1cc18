// Package session keeps alive what a Locker's leases live under: a lease in etcd, a row in Postgres, or a key.
package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

type LeaseService[ID any] interface {
	Grant(ctx context.Context, ttl time.Duration) (ID, time.Duration, error)
	// KeepAlive returns 0 if the lease doesn't exist, and an OverError if it can't be relied on for another reason.
	KeepAlive(ctx context.Context, id ID) (time.Duration, error)
}

type OverError fence.LossReason

func (e OverError) Error() string { return "the lease is over: " + string(e) }

type Session[ID any] struct {
	ID ID

	service        LeaseService[ID]
	requestTimeout time.Duration
	ctx            context.Context
	cancel         context.CancelFunc
	onEnd          func(*Session[ID], fence.LossReason)

	mu           sync.Mutex
	ttl          time.Duration
	sent         time.Time
	deadline     time.Time
	timer        *time.Timer
	failure      error
	due          time.Time
	paused       time.Duration    // the most by which Run was late since the last renewal
	ended        fence.LossReason // "" before the end
	needed       int
	afterRenewal []func()

	wake chan struct{}
}

// Start asks for a lease, which Run renews. onEnd is called once, when the lease isn't reliable any more.
func Start[ID any](
	ctx context.Context, service LeaseService[ID], ttl, requestTimeout time.Duration, onEnd func(*Session[ID], fence.LossReason),
) (*Session[ID], error) {
	sent := time.Now()
	id, ttl, err := service.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	s := &Session[ID]{ID: id, service: service, requestTimeout: requestTimeout, onEnd: onEnd, wake: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	s.timer, s.due = time.AfterFunc(ttl, s.expire), sent.Add(ttl-ttl/margin)
	s.mu.Unlock()
	s.renewed(sent, ttl)
	return s, nil
}

// margin makes the deadline a tenth of the time to live earlier than the lease's end, far more than clocks drift
// apart.
const margin = 10

// renewed moves the deadline. After the old deadline it ends the session instead, even if the process was stopped
// and the timer could not run (F3).
func (s *Session[ID]) renewed(sent time.Time, ttl time.Duration) {
	s.mu.Lock()
	now := time.Now() // taken after Lock, which may wait
	if s.ended != "" {
		s.mu.Unlock()
		return
	}
	if !s.deadline.IsZero() && !now.Before(s.deadline) { // mutant: answer-after-the-deadline-revives
		s.mu.Unlock()
		s.End(fence.LossDeadline)
		return
	}
	s.ttl, s.sent, s.failure, s.paused = ttl, sent, nil, 0
	s.deadline = sent.Add(ttl - ttl/margin) // mutant: deadline-from-when-the-answer-came
	s.timer.Reset(s.deadline.Sub(now))
	s.mu.Unlock()
}

func (s *Session[ID]) expire() {
	if s.Remaining() == 0 {
		s.End(fence.LossDeadline)
	}
}

func (s *Session[ID]) Remaining() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != "" {
		return 0
	}
	return max(0, time.Until(s.deadline))
}

// Over says why the session isn't reliable any more; "" while it is. It compares the deadline, since the timer of a
// process that was stopped may be late (F3).
func (s *Session[ID]) Over() fence.LossReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == "" && !time.Now().Before(s.deadline) { // mutant: deadline-is-left-to-the-timer
		return fence.LossDeadline
	}
	return s.ended
}

func (s *Session[ID]) Run() {
	timer := time.NewTimer(s.next(s.pause(true)))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		after := s.takeAfterRenewal()
		timer.Reset(s.next(s.pause(s.renew())))
		if s.ctx.Err() != nil {
			return
		}
		for _, f := range after {
			f()
		}
	}
}

func (s *Session[ID]) next(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = max(s.paused, time.Since(s.due))
	s.due = time.Now().Add(d)
	return d
}

// Paused is the least time for which the process didn't run when it should have renewed; 0 if load explains it.
func (s *Session[ID]) Paused() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused < s.ttl/10 {
		return 0
	}
	return s.paused.Round(100 * time.Millisecond)
}

func (s *Session[ID]) RenewNow(f func()) {
	s.mu.Lock()
	s.afterRenewal = append(s.afterRenewal, f)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Session[ID]) takeAfterRenewal() []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := s.afterRenewal
	s.afterRenewal = nil
	return after
}

func (s *Session[ID]) pause(renewed bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !renewed {
		return s.ttl / 20
	}
	return time.Until(s.sent.Add(s.ttl / 3))
}

// renew leaves time for another try before the deadline. After a stop of the process it may run before the timer
// does.
func (s *Session[ID]) renew() bool {
	left := s.Remaining()
	if left == 0 {
		s.End(fence.LossDeadline)
		return false
	}
	limit := min(s.requestTimeout, s.GrantedTTL()/3, left)
	ctx, cancel := context.WithTimeout(s.ctx, s.next(limit))
	defer cancel()
	sent := time.Now()
	ttl, err := s.service.KeepAlive(ctx, s.ID)
	var over OverError
	switch {
	case errors.As(err, &over):
		s.End(fence.LossReason(over))
	case err != nil:
		s.failed(err)
	case ttl <= 0:
		s.End(fence.LossExpired)
	default:
		s.renewed(sent, ttl)
	}
	return err == nil
}

func (s *Session[ID]) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil || !errors.Is(err, context.DeadlineExceeded) {
		s.failure = err
	}
}

func (s *Session[ID]) LastFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *Session[ID]) Need(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needed += n
}

func (s *Session[ID]) EndIfUnneeded() { s.end(fence.LossExpired, true) }

func (s *Session[ID]) End(reason fence.LossReason) { s.end(reason, false) }

// MissDeadline is for tests. It leaves what a process finds that was stopped: its deadline is over, and its timer late.
func (s *Session[ID]) MissDeadline() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer.Stop()
	s.deadline = time.Now()
}

func (s *Session[ID]) end(reason fence.LossReason, unlessNeeded bool) {
	s.mu.Lock()
	if s.ended != "" || unlessNeeded && s.needed > 0 {
		s.mu.Unlock()
		return
	}
	s.ended = reason
	s.paused = max(s.paused, time.Since(s.due))
	s.timer.Stop()
	s.cancel()
	s.mu.Unlock()
	s.onEnd(s, reason)
}

func (s *Session[ID]) Context() context.Context { return s.ctx }

func (s *Session[ID]) GrantedTTL() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl
}
