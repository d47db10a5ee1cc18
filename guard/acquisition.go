package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// acquisition is what a call has of its resources: local locks, in the order of their names, and leases. A call waits,
// for a local lock or another process's, only for a name greater than all that it has. Every process does so, and calls
// never wait in a circle. Idle leases block nobody, since they are released as soon as another process waits.
type acquisition struct {
	locks               *localLocks
	resources           []string
	releaseBeforeReturn bool

	held     []*localLock
	states   grantStates
	oneHeld  [1]*localLock
	oneState [1]*grantState
}

// lockAll takes the missing local locks alone. It returns errShared if another call has run the shareable one meanwhile.
func (a *acquisition) lockAll(ctx context.Context, shareable any) error {
	for len(a.held) < len(a.resources) {
		if err := a.lockNext(ctx, shareable); err != nil {
			return err
		}
	}
	return nil
}

func (a *acquisition) lockNext(ctx context.Context, shareable any) error {
	if a.held == nil {
		a.held = a.oneHeld[:0]
	}
	l, err := a.locks.lock(ctx, a.resources[len(a.held)], shareable)
	if err != nil {
		return err
	}
	if l == nil {
		return errShared
	}
	a.held = append(a.held, l)
	return nil
}

// acquire takes the missing local locks and sets states to usable leases. Before it acquires one, it unlocks the
// local locks of later resources. It returns errShared if another call has run the shareable one meanwhile.
func (a *acquisition) acquire(ctx context.Context, shareable any) error {
	a.states = nil
	states := grantStates(a.oneState[:0])
	for i := range a.resources {
		if i == len(a.held) {
			if err := a.lockNext(ctx, shareable); err != nil {
				return err
			}
			if l := a.held[i]; l.grant == nil && len(a.resources) > i+1 {
				if err := a.tryRest(ctx); err != nil {
					return err
				}
			}
		}
		l := a.held[i]
		if !a.locks.usable(l.grant) {
			a.unlockFrom(ctx, i+1)
			if l.grant != nil {
				a.locks.release(ctx, l)
			}
			if err := a.locks.acquire(ctx, l); err != nil {
				return err
			}
		}
		l.grant.releaseBeforeReturn = a.releaseBeforeReturn
		states = append(states, l.grant)
	}
	a.states = states
	return nil
}

var errShared = errors.New("guard: another call ran it in its transaction")

// tryRest takes local locks and leases, in one step, from the last held one up to the first resource that isn't free.
func (a *acquisition) tryRest(ctx context.Context) error {
	missing := slices.Clone(a.held[len(a.held)-1:])
	for _, resource := range a.resources[len(a.held):] {
		l := a.locks.tryLock(resource)
		if l == nil {
			break
		}
		a.held = append(a.held, l)
		if l.grant == nil {
			missing = append(missing, l)
		} else if !a.locks.usable(l.grant) {
			break
		}
	}
	if len(missing) == 1 {
		return nil
	}
	return a.locks.acquire(ctx, missing...)
}

// unlockFrom unlocks the local locks from number n on. If their leases aren't kept it does so all at once, since a lock
// service can release them in one step.
func (a *acquisition) unlockFrom(ctx context.Context, n int) {
	n = min(n, len(a.held))
	passed := a.held[n:]
	a.held = a.held[:n]
	if len(passed) > 1 && (a.releaseBeforeReturn || a.locks.keepFor < 0) {
		var passing sync.WaitGroup
		for _, l := range passed {
			passing.Go(func() { a.locks.unlock(ctx, l) })
		}
		passing.Wait()
		return
	}
	for _, l := range slices.Backward(passed) {
		a.locks.unlock(ctx, l)
	}
}

func (ls *localLocks) usable(s *grantState) bool {
	if s == nil || s.dead || s.lease.Err() != nil { // mutant: dead-grants-are-used
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !s.overrun && (s.contendedAt == 0 || ls.now()-s.contendedAt < ls.maxHold) // mutant: calls-go-on-although-others-wait
}

func (ls *localLocks) acquire(ctx context.Context, locks ...*localLock) error {
	resources, superseders := make([]string, len(locks)), make([]*fence.Grant, len(locks))
	for i, l := range locks {
		resources[i], superseders[i] = l.resource, ls.sightings.of(l.resource).superseder
	}
	until, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ls.closing, func() { cancel(ErrClosed) })()
	start := time.Now()
	leases, err := ls.askLocker(until, resources)
	if err != nil {
		err = withCause(until, acquireError(resources[0], err))
		ls.failWaiting(ctx, err, locks)
		return err
	}
	for i, lease := range leases {
		ls.report.acquired(until, lease.Grant(), time.Since(start))
		ls.setGrant(locks[i], lease, superseders[i])
	}
	return nil
}

func (ls *localLocks) askLocker(ctx context.Context, resources []string) ([]fence.Lease, error) {
	if len(resources) > 1 {
		return ls.locker.TryAcquireAll(ctx, resources...)
	}
	ls.report.acquiring(ctx, resources[0], 1)
	defer ls.report.acquiring(ctx, resources[0], -1)
	lease, err := ls.locker.Acquire(ctx, resources[0])
	return []fence.Lease{lease}, err
}

func (ls *localLocks) setGrant(l *localLock, lease fence.Lease, superseder *fence.Grant) {
	grant := lease.Grant()
	s := &grantState{claim: storage.Claim{Grant: grant, Position: ls.sightings.of(grant.Resource).position}, superseder: superseder, lease: lease, lock: l}
	ls.mu.Lock()
	l.grant = s
	ls.mu.Unlock()
	lease.AfterLost(s.onLost)
	lease.AfterContended(s.onContended)
}

// raise has a lock service that lost its count go on above each fence that rejected one of states with err, and
// returns err.
func (ls *localLocks) raise(ctx context.Context, states grantStates, err error) error {
	service, can := ls.locker.(fence.Raiser)
	for _, s := range states {
		r := rejectionOf(err, s.claim.Grant)
		if !can || s.lease == nil || r == nil || r.Reason != storage.ReasonStale {
			continue
		}
		if failed := service.Raise(ctx, r.Current); failed != nil {
			return fmt.Errorf("%w; the lock service was not raised: %w", err, failed)
		}
		s.raised = true
	}
	return err
}

func acquireError(resource string, err error) error {
	if away := (*fence.UnavailableError)(nil); errors.As(err, &away) && away.Call == "acquire "+resource {
		return fmt.Errorf("guard: %w", err)
	}
	return fmt.Errorf("guard: acquire %s: %w", resource, err)
}
