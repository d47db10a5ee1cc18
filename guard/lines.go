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

type lines struct {
	locker  fence.Locker
	keepFor time.Duration
	maxHold time.Duration
	memory  *memory
	report  *reporter
	timeout error // ends a step after Config.StoreTimeout
	made    time.Time

	closing    context.Context
	beginClose context.CancelCauseFunc
	busy       sync.WaitGroup // lines, releases, and calls under callers' grants
	done       chan struct{}

	mu         sync.Mutex
	closed     bool
	abandoned  bool
	running    list[*runContext]
	byResource map[string]*line
	unreleased []error

	// Those that expire first come first, so one timer is enough. Some may be in use again.
	idle     list[*grantState]
	timer    *time.Timer
	expiring bool
	places   chan struct{}
}

// line is a resource's queue and lease. Only the call that has the turn uses the lease, also to release it.
type line struct {
	lines    *lines
	resource string
	lease    *grantState // written with the turn and lines.mu, read with either
	backoff  backoff     // used with the turn

	// Guarded by lines.mu.
	waiting queue
	busy    bool
}

func newLines(locker fence.Locker, keepFor, storeTimeout time.Duration, memory *memory, report *reporter) *lines {
	t := &lines{
		locker: locker, keepFor: keepFor, maxHold: maxHold, memory: memory, report: report,
		timeout: fmt.Errorf("%w: no answer in time (Config.StoreTimeout is %v)", ErrStoreUnavailable, storeTimeout),
		made:    time.Now(), done: make(chan struct{}), byResource: map[string]*line{}, places: make(chan struct{}, maxExpiryReleases),
	}
	t.closing, t.beginClose = context.WithCancelCause(context.Background())
	t.timer = time.AfterFunc(time.Hour, func() { t.releaseExpired(t.places) })
	t.timer.Stop()
	return t
}

// now is like time.Now, but smaller, and never 0.
func (t *lines) now() time.Duration { return time.Since(t.made) + 1 }

func (t *lines) turn(resource string) (l *line, free bool) {
	l, ok := t.byResource[resource]
	if !ok {
		l = &line{lines: t, resource: resource}
		t.byResource[resource] = l
		t.busy.Add(1)
	}
	free = !l.busy
	l.busy = true
	return l, free
}

// owns reports whether this process has a lease of each of resources.
func (t *lines) owns(resources []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(resources, func(resource string) bool {
		l := t.byResource[resource]
		return l == nil || l.lease == nil
	})
}

func (t *lines) tryTurn(resource string) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	if l, free := t.turn(resource); free {
		return l
	}
	return nil
}

// takeTurn returns nil and no error if another call has dealt with offer.
func (t *lines) takeTurn(ctx context.Context, resource string, offer any) (*line, error) {
	if ctx.Err() != nil {
		return nil, endError(ctx)
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, ErrClosed
	}
	l, free := t.turn(resource)
	if free {
		t.mu.Unlock()
		return l, nil
	}
	w := l.waiting.join(offer)
	t.mu.Unlock()
	return t.wait(ctx, l, w)
}

func (t *lines) wait(ctx context.Context, l *line, w *waiter) (*line, error) {
	t.report.queued(ctx, l.resource, 1)
	defer t.report.queued(ctx, l.resource, -1)
	left := l.waiting.wait(ctx, &t.mu, w)
	switch {
	case w.got == theOffer:
		return nil, nil
	case w.got == theTurn && !left:
		return l, nil
	case w.got == theTurn:
		t.passTurn(ctx, l)
	}
	return nil, cmp.Or(w.failure, leftQueueError(ctx, l.resource))
}

func (t *lines) passTurn(ctx context.Context, l *line) {
	t.mu.Lock()
	if s := l.lease; s != nil && !t.keeps(l) {
		t.mu.Unlock()
		if s.brief && !s.atOnce && t.keepFor > 0 {
			go t.releaseAndPass(context.Background(), l)
		} else {
			t.releaseAndPass(ctx, l)
		}
		return
	}
	defer t.mu.Unlock()
	if w := l.waiting.front(); w != nil {
		l.waiting.remove(&w.links)
		w.wake(theTurn, nil)
		return
	}
	l.busy = false
	if l.lease == nil {
		delete(t.byResource, l.resource)
		t.busy.Done()
		return
	}
	t.startExpiry(l.lease)
}

// maxHold is how long calls may still begin after another process has begun to wait: a change of hands costs a few
// milliseconds, which this spreads over many calls.
const maxHold = 100 * time.Millisecond

// keeps reports whether to keep the lease of l after a call. The caller holds mu.
func (t *lines) keeps(l *line) bool {
	s := l.lease
	over := t.closed || s.atOnce || s.brief || s.dead || s.overrun || s.contended > 0
	return t.keepFor > 0 && (l.waiting.len > 0 || !over && s.lease.Err() == nil)
}

// failWaiting fails the calls behind one whose lock service gave no answer, since each would wait as long. If that
// call's ctx has ended, others may have better luck.
func (t *lines) failWaiting(ctx context.Context, err error, lines []*line) {
	var away *fence.UnavailableError
	if ctx.Err() != nil || !errors.As(err, &away) || away.Reason != fence.Unreachable {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range lines {
		l.waiting.failAll(err)
	}
}

// takeWaiting takes up to n waiters with an offer from the front of l's queue. They wait on until endTaken.
func (t *lines) takeWaiting(l *line, n int) []*waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.waiting.take(n)
}

func (t *lines) endTaken(l *line, taken []*waiter, back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := l.waiting.ends.next
	for _, w := range taken {
		switch {
		case !back:
			w.wake(theOffer, nil)
		case w.leaving:
			w.wake(nothing, nil)
		case t.closed:
			w.wake(nothing, ErrClosed)
		default:
			l.waiting.insert(&w.links, w, first)
		}
	}
}

func (t *lines) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.busy.Add(1)
	return nil
}

func (t *lines) close(ctx context.Context) error {
	defer context.AfterFunc(ctx, t.abandon)()
	least := time.NewTimer(releaseTimeout)
	defer least.Stop()
	t.beginClosing()
	go t.releaseExpired(make(chan struct{}, maxCloseReleases))
	var gaveUp error
	select {
	case <-t.done:
	case <-ctx.Done():
		select {
		case <-t.done:
		case <-least.C:
			gaveUp = fmt.Errorf("guard: close: %w", ctx.Err())
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(append([]error{gaveUp}, t.unreleased...)...)
}

func (t *lines) abandon() {
	t.mu.Lock()
	t.abandoned = true
	var running []*runContext
	for c := t.running.front(); c != nil; c = t.running.front() {
		t.running.remove(&c.links)
		running = append(running, c)
	}
	t.mu.Unlock()
	for _, c := range running {
		c.end(ErrClosed)
	}
}

func (t *lines) beginClosing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	t.beginClose(ErrClosed)
	t.timer.Stop()
	for _, l := range t.byResource {
		l.waiting.failAll(ErrClosed)
	}
	go func() {
		t.busy.Wait()
		close(t.done)
	}()
}

const maxCloseReleases = 32
