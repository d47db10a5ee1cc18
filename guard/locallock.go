package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

type localLocks struct {
	locker       fence.Locker
	keepFor      time.Duration
	maxHold      time.Duration
	sightings    *sightings
	report       *reporter
	timeoutError error // ends a step after Config.StoreTimeout
	createdAt    time.Time

	closing    context.Context
	beginClose context.CancelCauseFunc
	inUse      sync.WaitGroup // local locks, releases, and calls under callers' grants
	done       chan struct{}

	mu         sync.Mutex
	closed     bool
	abandoned  bool
	running    list[*runContext]
	byResource map[string]*localLock
	unreleased []error

	// Those that expire first come first, so one timer is enough. Some may be in use again.
	idle         list[*grantState]
	timer        *time.Timer
	expiring     bool
	releaseSlots chan struct{}
}

// localLock is the lock of a resource within this process: its queue of calls, and the lease that is kept from call to
// call. Only the call that has the lock uses the lease, also to release it.
type localLock struct {
	locks    *localLocks
	resource string
	grant    *grantState // written with the lock and localLocks.mu, read with either
	backoff  backoff     // used with the lock

	// Guarded by localLocks.mu.
	waiting queue
	locked  bool
}

func newLocalLocks(locker fence.Locker, keepFor, storeTimeout time.Duration, memory *sightings, report *reporter) *localLocks {
	t := &localLocks{
		locker: locker, keepFor: keepFor, maxHold: maxHold, sightings: memory, report: report,
		timeoutError: fmt.Errorf("%w: no answer in time (Config.StoreTimeout is %v)", ErrStoreUnavailable, storeTimeout),
		createdAt:    time.Now(), done: make(chan struct{}), byResource: map[string]*localLock{}, releaseSlots: make(chan struct{}, maxExpiryReleases),
	}
	t.closing, t.beginClose = context.WithCancelCause(context.Background())
	t.timer = time.AfterFunc(time.Hour, func() { t.releaseExpired(t.releaseSlots) })
	t.timer.Stop()
	return t
}

// now is like time.Now, but smaller, and never 0.
func (ls *localLocks) now() time.Duration { return time.Since(ls.createdAt) + 1 }

func (ls *localLocks) take(resource string) (l *localLock, free bool) {
	l, ok := ls.byResource[resource]
	if !ok {
		l = &localLock{locks: ls, resource: resource}
		ls.byResource[resource] = l
		ls.inUse.Add(1)
	}
	free = !l.locked
	l.locked = true
	return l, free
}

// owns reports whether this process has a lease of each of resources.
func (ls *localLocks) owns(resources []string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !slices.ContainsFunc(resources, func(resource string) bool {
		l := ls.byResource[resource]
		return l == nil || l.grant == nil
	})
}

func (ls *localLocks) tryLock(resource string) *localLock {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil
	}
	if l, free := ls.take(resource); free {
		return l
	}
	return nil
}

// lock returns nil and no error if another call has run the shareable one in its transaction.
func (ls *localLocks) lock(ctx context.Context, resource string, shareable any) (*localLock, error) {
	if ctx.Err() != nil {
		return nil, endError(ctx)
	}
	ls.mu.Lock()
	if ls.closed {
		ls.mu.Unlock()
		return nil, ErrClosed
	}
	l, free := ls.take(resource)
	if free {
		ls.mu.Unlock()
		return l, nil
	}
	w := l.waiting.join(shareable)
	ls.mu.Unlock()
	return ls.wait(ctx, l, w)
}

func (ls *localLocks) wait(ctx context.Context, l *localLock, w *waiter) (*localLock, error) {
	ls.report.queued(ctx, l.resource, 1)
	defer ls.report.queued(ctx, l.resource, -1)
	left := l.waiting.wait(ctx, &ls.mu, w)
	switch {
	case w.result == ranShared:
		return nil, nil
	case w.result == gotLock && !left:
		return l, nil
	case w.result == gotLock:
		ls.unlock(ctx, l)
	}
	return nil, cmp.Or(w.failure, leftQueueError(ctx, l.resource))
}

func (ls *localLocks) unlock(ctx context.Context, l *localLock) {
	ls.mu.Lock()
	if s := l.grant; s != nil && !ls.keeps(l) {
		ls.mu.Unlock()
		if s.releaseInBackground && !s.releaseBeforeReturn && ls.keepFor > 0 {
			go ls.releaseAndUnlock(context.Background(), l)
		} else {
			ls.releaseAndUnlock(ctx, l)
		}
		return
	}
	defer ls.mu.Unlock()
	if w := l.waiting.front(); w != nil {
		l.waiting.remove(&w.links)
		w.wake(gotLock, nil)
		return
	}
	l.locked = false
	if l.grant == nil {
		delete(ls.byResource, l.resource)
		ls.inUse.Done()
		return
	}
	ls.startExpiry(l.grant)
}

// maxHold is how long calls may still begin after another process has begun to wait: a change of hands costs a few
// milliseconds, which this spreads over many calls.
const maxHold = 100 * time.Millisecond

// keeps reports whether to keep the lease of l after a call. The caller holds mu.
func (ls *localLocks) keeps(l *localLock) bool {
	s := l.grant
	over := ls.closed || s.releaseBeforeReturn || s.releaseInBackground || s.dead || s.overrun || s.contendedAt > 0
	return ls.keepFor > 0 && (l.waiting.len > 0 || !over && s.lease.Err() == nil)
}

// failWaiting fails the calls behind one whose lock service gave no answer, since each would wait as long. If that
// call's ctx has ended, others may have better luck.
func (ls *localLocks) failWaiting(ctx context.Context, err error, locks []*localLock) {
	var away *fence.UnavailableError
	if ctx.Err() != nil || !errors.As(err, &away) || away.Reason != fence.Unreachable {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range locks {
		l.waiting.failAll(err)
	}
}

// takeSharers takes up to n shareable calls from the front of l's queue. They wait on until endSharers.
func (ls *localLocks) takeSharers(l *localLock, n int) []*waiter {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.waiting.takeShareable(n)
}

func (ls *localLocks) endSharers(l *localLock, taken []*waiter, back bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	first := l.waiting.ends.next
	for _, w := range taken {
		switch {
		case !back:
			w.wake(ranShared, nil)
		case w.leaving:
			w.wake(gotNothing, nil)
		case ls.closed:
			w.wake(gotNothing, ErrClosed)
		default:
			l.waiting.insert(&w.links, w, first)
		}
	}
}

func (ls *localLocks) enter() error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return ErrClosed
	}
	ls.inUse.Add(1)
	return nil
}

func (ls *localLocks) close(ctx context.Context) error {
	defer context.AfterFunc(ctx, ls.abandon)()
	least := time.NewTimer(releaseTimeout)
	defer least.Stop()
	ls.startClose()
	go ls.releaseExpired(make(chan struct{}, maxCloseReleases))
	var gaveUp error
	select {
	case <-ls.done:
	case <-ctx.Done():
		select {
		case <-ls.done:
		case <-least.C:
			gaveUp = fmt.Errorf("guard: close: %w", ctx.Err())
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return errors.Join(append([]error{gaveUp}, ls.unreleased...)...)
}

func (ls *localLocks) abandon() {
	ls.mu.Lock()
	ls.abandoned = true
	var running []*runContext
	for c := ls.running.front(); c != nil; c = ls.running.front() {
		ls.running.remove(&c.links)
		running = append(running, c)
	}
	ls.mu.Unlock()
	for _, c := range running {
		c.end(ErrClosed)
	}
}

func (ls *localLocks) startClose() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return
	}
	ls.closed = true
	ls.beginClose(ErrClosed)
	ls.timer.Stop()
	for _, l := range ls.byResource {
		l.waiting.failAll(ErrClosed)
	}
	go func() {
		ls.inUse.Wait()
		close(ls.done)
	}()
}

const maxCloseReleases = 32
