package guardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// LockService is a lock service in memory, for tests. Several Lockers on one are like several processes. It starts
// goroutines only for AfterContended and AfterLost, so it works in a bubble of testing/synctest.
type LockService struct {
	mu        sync.Mutex
	epoch     int64
	next      fence.Token
	grants    int
	err       error
	resources map[string]*lock
	changed   chan struct{} // closed at a change of a leader or its value; nil without observers
}

type lock struct {
	resource string
	owner    *lease
	waiting  []*lease
}

// NewLockService returns a LockService with epoch 1. Its first token is the time since 1970 in units of 64 µs, so
// later runs have higher ones, but for two years not so much higher that a database takes them for a mistake.
func NewLockService() *LockService {
	return &LockService{epoch: 1, next: clock(), resources: map[string]*lock{}}
}

// tick is the time per token. A LockService that grants no faster stays behind the first token of any later one.
const tick = 64 * time.Microsecond

func clock() fence.Token { return fence.Token(time.Now().UnixMicro() / tick.Microseconds()) }

// SetToken sets the token of the next grant, from 1; later ones count on from there.
func (s *LockService) SetToken(token fence.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = token
}

// SetEpoch sets the epoch of later grants.
func (s *LockService) SetEpoch(epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = epoch
}

// Fail makes later acquisitions fail with a *fence.UnavailableError that wraps err, until it is called with
// nil.
func (s *LockService) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Lose ends the lease on resource, if any, as if it had expired, and grants the resource to the first caller that
// waits. It reports whether a lease was held.
func (s *LockService) Lose(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.lock(resource).owner
	if owner != nil {
		s.end(owner, &fence.LeaseLostError{Grant: owner.grant, Reason: fence.LossExpired})
	}
	return owner != nil
}

// Contend makes the lease on resource, if any, see that another process waits. It reports whether a lease was held.
func (s *LockService) Contend(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.lock(resource).owner
	if owner != nil {
		owner.contend()
	}
	return owner != nil
}

// Holder returns the grant that has resource; the zero Grant if it is free.
func (s *LockService) Holder(resource string) fence.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner := s.lock(resource).owner; owner != nil {
		return owner.grant
	}
	return fence.Grant{}
}

// Grants returns how many leases were granted.
func (s *LockService) Grants() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants
}

// Locker is the fence.Locker of one process.
type Locker struct {
	service *LockService
	label   string
	closed  bool
	process *simulated // or nil
}

var _ ClosableLocker = (*Locker)(nil)

// NewLocker returns a Locker on a LockService of its own. Lockers that share a database need LockService.NewLocker.
func NewLocker() *Locker { return NewLockService().NewLocker("guardtest") }

// NewLocker returns another Locker on s. Its holders are label and a random number.
func (s *LockService) NewLocker(label string) *Locker { return &Locker{service: s, label: label} }

// Service returns the LockService of l.
func (l *Locker) Service() *LockService { return l.service }

func (l *Locker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	granted, err := l.acquire(ctx, resource, "")
	if err != nil {
		return nil, err
	}
	return granted, nil
}

func (l *Locker) acquire(ctx context.Context, resource, value string) (*lease, error) {
	e := newLease(l, value)
	if err := l.process.await("asks for the lock of " + resource); err != nil {
		return nil, err
	}
	if err := l.enqueue(ctx, resource, e, true); err != nil {
		return nil, err
	}
	if err := l.process.awaitLock(ctx, resource, e); err != nil {
		l.service.cancel(resource, e)
		return nil, err
	}
	select {
	case <-e.granted: // also if it is lost by now: a simulation repeats that
		return e, nil
	default:
	}
	select {
	case <-e.granted:
		return e, nil
	case <-e.Done():
		return nil, e.Err()
	case <-ctx.Done():
		l.service.cancel(resource, e)
		return nil, fmt.Errorf("guardtest: acquire %s: %w: %w", resource, ctx.Err(), &fence.LockedError{Resource: resource})
	}
}

// Close implements ClosableLocker.
func (l *Locker) Close(context.Context) error {
	s := l.service
	s.mu.Lock()
	defer s.mu.Unlock()
	l.closed = true
	for _, k := range s.resources {
		k.waiting = slices.DeleteFunc(k.waiting, func(e *lease) bool {
			if e.locker == l {
				e.end(fence.ErrClosed)
			}
			return e.locker == l
		})
		s.lose(k, l, fence.LossClosed)
	}
	return nil
}

// lose ends the lease of l on k, if it has one.
func (s *LockService) lose(k *lock, l *Locker, reason fence.LossReason) {
	if k.owner != nil && k.owner.locker == l {
		s.end(k.owner, &fence.LeaseLostError{Grant: k.owner.grant, Reason: reason})
	}
}

func (l *Locker) TryAcquire(ctx context.Context, resource string) (fence.Lease, error) {
	e := newLease(l, "")
	if err := l.process.await("tries the lock of " + resource); err != nil {
		return nil, err
	}
	if err := l.enqueue(ctx, resource, e, false); err != nil {
		return nil, err
	}
	return e, nil
}

func (l *Locker) TryAcquireAll(ctx context.Context, resources ...string) ([]fence.Lease, error) {
	var held []fence.Lease
	for _, resource := range resources {
		le, err := l.TryAcquire(ctx, resource)
		if errors.Is(err, fence.ErrLocked) {
			break
		}
		if err != nil {
			for _, le := range held {
				_ = le.Release(ctx)
			}
			return nil, err
		}
		held = append(held, le)
	}
	return held, nil
}

func (l *Locker) enqueue(ctx context.Context, resource string, e *lease, wait bool) error {
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("guardtest: acquire %s: %w", resource, err)
	}
	s := l.service
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.lock(resource)
	switch {
	case l.closed:
		return fence.ErrClosed
	case s.err != nil:
		return &fence.UnavailableError{Call: "acquire " + resource, Err: s.err}
	case k.owner != nil && !wait:
		return &fence.LockedError{Resource: resource, Holder: k.owner.grant.Holder}
	case k.owner != nil && k.owner.locker != l:
		k.owner.contend()
	}
	k.waiting = append(k.waiting, e)
	s.grantNext(k)
	return nil
}

func (s *LockService) cancel(resource string, e *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.lock(resource)
	if i := slices.Index(k.waiting, e); i >= 0 {
		k.waiting = slices.Delete(k.waiting, i, i+1)
	} else if e.ctx.Err() == nil {
		s.end(e, fence.ErrReleased)
	}
}

func (s *LockService) lock(resource string) *lock {
	k := s.resources[resource]
	if k == nil {
		k = &lock{resource: resource}
		s.resources[resource] = k
	}
	return k
}

func (s *LockService) end(owner *lease, cause error) {
	owner.end(cause)
	if k := s.lock(owner.grant.Resource); k.owner == owner {
		s.free(k)
	}
}

func (s *LockService) free(k *lock) {
	k.owner = nil
	s.notify()
	s.grantNext(k)
}

// expire ends the leases of l, and returns of which resources. Unless they are noticed, l goes on as if it had them.
func (s *LockService) expire(l *Locker, noticed bool) (lost []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		k := s.resources[name]
		switch {
		case k.owner == nil || k.owner.locker != l:
			continue
		case noticed:
			s.lose(k, l, fence.LossExpired)
		default:
			s.free(k)
		}
		lost = append(lost, name)
	}
	return lost
}

func (s *LockService) grantNext(k *lock) {
	if k.owner != nil || len(k.waiting) == 0 {
		return
	}
	e := k.waiting[0]
	k.waiting = k.waiting[1:]
	k.owner = e
	e.grant = s.issue(k.resource, e.locker.label)
	s.grants++
	s.notify()
	close(e.granted)
	if slices.ContainsFunc(k.waiting, func(other *lease) bool { return other.locker != e.locker }) {
		e.contend()
	}
}

func (s *LockService) notify() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *LockService) issue(resource, label string) fence.Grant {
	g := fence.Grant{Resource: resource, Epoch: s.epoch, Token: s.next, Holder: fmt.Sprintf("%s-%016x", label, rand.Uint64())}
	s.next++
	return g
}
