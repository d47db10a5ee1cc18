package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
)

const releaseTimeout = 5 * time.Second

func (ls *localLocks) release(ctx context.Context, l *localLock) {
	s := l.grant
	ls.mu.Lock()
	l.grant = nil
	if s.contendedAt > 0 {
		s.lastUser = anotherProcess
	}
	ls.inUse.Add(1)
	ls.stopExpiry(s)
	ls.mu.Unlock()
	ls.sightings.note(s)
	released := make(chan struct{})
	go func() {
		defer close(released)
		err := releaseLease(s.lease)
		ls.report.released(s.claim.Grant, err)
		ls.mu.Lock()
		if err != nil && ls.closed {
			ls.unreleased = append(ls.unreleased, fmt.Errorf("guard: release %s: %w", l.resource, err))
		}
		ls.mu.Unlock()
		ls.inUse.Done()
	}()
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// releaseLease ignores the calls' contexts, whose end would keep the resource from the next process. A panic or a
// runtime.Goexit of the lock service becomes an error: it must not end the process, or make Close wait for ever.
func releaseLease(lease fence.Lease) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if failure := callback.Run(func() { err = lease.Release(ctx) }); failure != nil {
		return failure
	}
	return err
}

// releaseEarly releases a lease under which a function still runs. The usual release then does nothing.
func (ls *localLocks) releaseEarly(s *grantState) {
	ls.mu.Lock()
	s.overrun = true
	ls.mu.Unlock()
	if s.lease != nil {
		go releaseLease(s.lease)
	}
}

func (ls *localLocks) releaseAndUnlock(ctx context.Context, l *localLock) {
	ls.release(ctx, l)
	ls.unlock(ctx, l)
}

// onContended lets go of a lease. If it is in use, that is when no more calls wait here, or after maxHold between two
// calls.
func (s *grantState) onContended() {
	t := s.lock.locks
	t.mu.Lock()
	if s.contendedAt == 0 {
		s.contendedAt = t.now()
	}
	t.mu.Unlock()
	s.releaseIfIdle()
}

func (s *grantState) onLost() {
	t := s.lock.locks
	t.mu.Lock()
	inUse := s.lock.locked && s.lock.grant == s
	t.mu.Unlock()
	if run := s.running.Load(); run != nil {
		run.end(s.lease.Err()) // mutant: functions-outlive-their-lease
	}
	var loss *fence.LeaseLostError
	if errors.As(s.lease.Err(), &loss) {
		t.report.leaseLost(loss, inUse)
	}
	s.releaseIfIdle()
}

func (s *grantState) releaseIfIdle() {
	t := s.lock.locks
	t.mu.Lock()
	took := t.lockIfIdle(s)
	t.mu.Unlock()
	if took {
		t.releaseAndUnlock(context.Background(), s.lock)
	}
}

func (ls *localLocks) lockIfIdle(s *grantState) bool {
	if s.lock.locked || s.lock.grant != s {
		return false
	}
	s.lock.locked = true
	return true
}

// maxExpiryReleases bounds releases at a time, because thousands of leases may expire together while others have to
// be renewed.
const maxExpiryReleases = 8

func (ls *localLocks) startExpiry(s *grantState) {
	ls.stopExpiry(s)
	s.idleSince = ls.now()
	ls.idle.insert(&s.links, s, nil)
	if !ls.expiring {
		ls.expiring = true
		ls.timer.Reset(ls.keepFor)
	}
}

func (ls *localLocks) stopExpiry(s *grantState) {
	if s.listed() {
		ls.idle.remove(&s.links)
	}
}

func (ls *localLocks) releaseExpired(places chan struct{}) {
	for {
		places <- struct{}{}
		l := ls.lockExpired()
		if l == nil {
			<-places
			return
		}
		go func() {
			ls.releaseAndUnlock(context.Background(), l)
			<-places
		}()
	}
}

func (ls *localLocks) lockExpired() *localLock {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for s := ls.idle.front(); s != nil; s = ls.idle.front() {
		if left := s.idleSince + ls.keepFor - ls.now(); left > 0 && !ls.closed {
			ls.timer.Reset(left)
			return nil
		}
		ls.stopExpiry(s)
		if ls.lockIfIdle(s) {
			return s.lock
		}
	}
	ls.expiring = false
	return nil
}
