// Package turns shares resources among the calls of one process, and among processes through a
// lock service. Calls for one resource have the turn one after another, in order of arrival. The
// lease of a resource is kept from call to call, until another process waits for it, or no call has
// used it for a while. The package knows nothing of what calls do with what they have.
package turns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Config says how leases are acquired and kept.
type Config[V Value] struct {
	Locker  fence.Locker
	KeepFor time.Duration // how long a lease is kept after the last call; negative: not at all
	MaxHold time.Duration // how long calls may still begin after another process has begun to wait
	Events  Events
	// Prepare returns the value of a lease that the lock service will be asked for.
	Prepare func(resource string) V
}

// Value is what the calls that use a lease keep with it. Its methods are called with the turn.
type Value interface {
	Granted(lease fence.Lease) // the lock service has granted the lease
	Usable() bool              // another call may begin under the lease
	GivenUp()                  // no further call will use the lease
}

// Events is told what happens.
type Events interface {
	Queued(ctx context.Context, resource string, delta int)
	Acquiring(ctx context.Context, resource string, delta int)
	Acquired(ctx context.Context, g fence.Grant, wait time.Duration)
	LeaseLost(err *fence.LeaseLostError, inUse bool)
	Released(g fence.Grant, err error)
}

// Turns has a line for each resource in use: the calls that wait for it in this process, and its lease.
// Use New.
type Turns[V Value] struct {
	Config[V]

	began      time.Time
	closing    context.Context // ends when Close begins
	beginClose context.CancelCauseFunc
	done       chan struct{} // closed when, after Close, all calls have ended and all is released

	mu         sync.Mutex
	closed     bool
	lines      map[string]*line[V] // by resource: those with a call or a lease
	idle       idleLeases[V]
	pending    int     // how many releases, and calls that have entered, are under way
	unreleased []error // of releases that failed since Close began
}

// line is the queue of calls for one resource. One call at a time has the turn; only it uses the lease.
// What releases an idle lease takes the turn too.
type line[V Value] struct {
	turns    *Turns[V]
	resource string
	waiting  chain[*waiter] // in order of arrival
	lease    *kept[V]       // written with the turn and Turns.mu, read with either
	busy     bool           // a call has the turn

	shared    bool    // the call that has the turn has taken others from the queue
	sharedEnd instant // when such a call last ended; 0 if none has
}

// New returns Turns without calls.
func New[V Value](cfg Config[V]) *Turns[V] {
	t := &Turns[V]{Config: cfg, began: time.Now(), done: make(chan struct{}), lines: map[string]*line[V]{}}
	t.closing, t.beginClose = context.WithCancelCause(context.Background())
	return t
}

// Size returns how many resources have a call or a lease.
func (t *Turns[V]) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

// lineOf returns the line of resource, a new one if there is none. The caller holds mu.
func (t *Turns[V]) lineOf(resource string) *line[V] {
	l, ok := t.lines[resource]
	if !ok {
		l = &line[V]{turns: t, resource: resource}
		t.lines[resource] = l
	}
	return l
}

// Enter counts a call that takes no turns, so that Close waits for it. It calls Leave at its end.
func (t *Turns[V]) Enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fence.ErrClosed
	}
	t.pending++
	return nil
}

// Leave ends what Enter began.
func (t *Turns[V]) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

// leave notes that a release or a call has ended. The caller holds mu.
func (t *Turns[V]) leave() {
	t.pending--
	t.finish()
}

// Close makes calls that wait for a turn, and later ones, fail with fence.ErrClosed, releases the leases
// that no call uses at once and the others when their call ends, and waits until all have ended.
// It waits until ctx has ended, and for up to 5 s in any case. It returns the errors of releases. It may
// be called again.
func (t *Turns[V]) Close(ctx context.Context) error {
	patient, stop := withReleaseTime(ctx)
	defer stop()
	t.releaseAll(patient, t.closeLines())
	select {
	case <-t.done:
		return t.releaseErrors()
	case <-patient.Done():
		return errors.Join(fmt.Errorf("guard: close: %w", ctx.Err()), t.releaseErrors())
	}
}

// closeLines turns waiting calls away, and takes the turns at the lines that no call uses.
func (t *Turns[V]) closeLines() (idle []*line[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.beginClose(fence.ErrClosed)
	t.stopExpiry()
	for _, l := range t.lines {
		for w := l.waiting.first; w != nil; w = l.waiting.first {
			l.waiting.remove(w)
			w.fail(fence.ErrClosed)
		}
		if l.lease != nil && t.takeIdle(l.lease) {
			idle = append(idle, l)
		}
	}
	t.finish()
	return idle
}

// finish closes done if nothing is left after Close. The caller holds mu.
func (t *Turns[V]) finish() {
	if t.closed && len(t.lines) == 0 && t.pending == 0 {
		close(t.done)
	}
}

// releaseErrors returns the errors of releases since Close began.
func (t *Turns[V]) releaseErrors() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.unreleased...)
}

// maxCloseReleases bounds how many leases Close releases at a time.
const maxCloseReleases = 32

// releaseAll releases the leases of lines whose turns the caller has. It returns when that is done or
// ctx has ended.
func (t *Turns[V]) releaseAll(ctx context.Context, lines []*line[V]) {
	next := make(chan *line[V], len(lines))
	for _, l := range lines {
		next <- l
	}
	close(next)
	var done sync.WaitGroup
	for range min(maxCloseReleases, len(lines)) {
		done.Go(func() {
			for l := range next {
				t.releaseAndPass(ctx, l)
			}
		})
	}
	done.Wait()
}

// withReleaseTime returns a context that ends when ctx has ended, but not before releaseTimeout has
// passed.
func withReleaseTime(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(releaseTimeout, func() {
		unhook := context.AfterFunc(ctx, cancel)
		context.AfterFunc(patient, func() { unhook() })
	})
	return patient, func() {
		timer.Stop()
		cancel()
	}
}

// EndError returns the error for an operation that doesn't begin, or doesn't commit, because ctx has
// ended; nil if ctx has not ended.
func EndError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return WithCause(ctx, fmt.Errorf("guard: %w", err))
	}
	return nil
}

// LeftQueueError returns the error for a call whose ctx ended while it waited for its turn at resource.
// The text also fits a call that waits for the very function that made it: with a context from
// outside of that function, such a call looks like any other.
func LeftQueueError(ctx context.Context, resource string) error {
	return WithCause(ctx, fmt.Errorf("guard: %s: gave up waiting behind another call of this process (a call made inside its function has to use that function's context): %w", resource, ctx.Err()))
}

// WithCause adds the cause of ctx's end to err, if err says that a context has ended.
func WithCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	aboutEnd := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if cause == nil || !aboutEnd || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
