package turns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
)

// releaseTimeout bounds one release, and how long Close waits for releases after its context has ended.
const releaseTimeout = 5 * time.Second

// kept is the lease of a resource, kept from call to call. A process may have many: what belongs to all of
// them, such as the timer of KeepFor, is that of Turns.
type kept[V Value] struct {
	line   *line[V]
	lease  fence.Lease
	value  V
	atOnce bool // the call that has the turn doesn't want it kept

	endMu sync.Mutex
	onEnd func(error) // of the function that runs under it, or nil

	// Guarded by Turns.mu.
	contended       instant // when another process began to wait; 0 if none does
	idleSince       instant // when the last call ended
	place[*kept[V]]         // in Turns.idle
}

func (o *kept[V]) inChain() *place[*kept[V]] { return &o.place }

// overrun is the value of contended if the lease is released while a function still runs under it. No
// other call may begin under it.
const overrun = instant(-1 << 62)

// acquire acquires the lease of l, whose turn the caller has, unless it has one that can be used.
func (t *Turns[V]) acquire(ctx context.Context, l *line[V]) error {
	if t.usable(l.lease) {
		return nil
	}
	if l.lease != nil {
		t.release(ctx, l)
	}
	value := t.Prepare(l.resource)
	lease, err := t.ask(ctx, l.resource)
	if err != nil {
		t.failWaiting(ctx, err, l)
		return err
	}
	t.keep(l, lease, value)
	return nil
}

// ask acquires resource from the lock service. It gives up when Close begins.
func (t *Turns[V]) ask(ctx context.Context, resource string) (fence.Lease, error) {
	ctx, end := t.untilClosing(ctx)
	defer end()
	start := time.Now()
	t.Events.Acquiring(ctx, resource, 1)
	lease, err := func() (fence.Lease, error) {
		defer t.Events.Acquiring(ctx, resource, -1)
		return t.Locker.Acquire(ctx, resource)
	}()
	if err != nil {
		return nil, WithCause(ctx, acquireError(resource, err))
	}
	t.Events.Acquired(ctx, lease.Grant(), time.Since(start))
	return lease, nil
}

// acquireAll acquires the resources of lines, in their order, up to the first that isn't free. The caller
// has their turns, and none has a lease.
func (t *Turns[V]) acquireAll(ctx context.Context, lines []*line[V]) error {
	resources, values := make([]string, len(lines)), make([]V, len(lines))
	for i, l := range lines {
		resources[i], values[i] = l.resource, t.Prepare(l.resource)
	}
	ctx, end := t.untilClosing(ctx)
	defer end()
	start := time.Now()
	leases, err := t.Locker.TryAcquireAll(ctx, resources...)
	if err != nil {
		err = WithCause(ctx, acquireError(resources[0], err))
		t.failWaiting(ctx, err, lines...)
		return err
	}
	for i, lease := range leases {
		t.Events.Acquired(ctx, lease.Grant(), time.Since(start))
		t.keep(lines[i], lease, values[i])
	}
	return nil
}

// keep makes lease that of l, whose turn the caller has.
func (t *Turns[V]) keep(l *line[V], lease fence.Lease, value V) {
	value.Granted(lease)
	o := &kept[V]{line: l, lease: lease, value: value}
	t.mu.Lock()
	l.lease = o
	t.mu.Unlock()
	lease.AfterLost(o.lost)
	lease.AfterContended(o.contend)
}

// untilClosing returns a context that ends when ctx does, or Close begins.
func (t *Turns[V]) untilClosing(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.closing, func() { cancel(fence.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// acquireError adds the name of the resource to err, unless err has it already.
func acquireError(resource string, err error) error {
	if away := (*fence.UnavailableError)(nil); errors.As(err, &away) && away.Op == "acquire "+resource {
		return fmt.Errorf("guard: %w", err)
	}
	return fmt.Errorf("guard: acquire %s: %w", resource, err)
}

// usable reports whether another call may begin under o. A nil o is not usable.
func (t *Turns[V]) usable(o *kept[V]) bool {
	if o == nil || !o.value.Usable() || o.lease.Err() != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return o.contended == 0 || o.contended != overrun && t.since(o.contended) < t.MaxHold // mutant: calls-go-on-although-others-wait
}

// release releases the lease of l, whose turn the caller has. When ctx ends it returns, and the release
// goes on.
func (t *Turns[V]) release(ctx context.Context, l *line[V]) {
	o := l.lease
	o.value.GivenUp()
	t.mu.Lock()
	l.lease = nil
	t.pending++
	t.idle.remove(o)
	t.mu.Unlock()
	released := make(chan struct{})
	go func() {
		defer close(released)
		t.releaseNow(context.WithoutCancel(ctx), o)
	}()
	select {
	case <-released:
	case <-ctx.Done():
	}
}

// releaseNow releases o, which is counted in pending. ctx is not that of a call, whose end would keep the
// resource from the next process.
func (t *Turns[V]) releaseNow(ctx context.Context, o *kept[V]) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := releaseLease(ctx, o.lease)
	t.Events.Released(o.lease.Grant(), err)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.closed {
		t.unreleased = append(t.unreleased, fmt.Errorf("guard: release %s: %w", o.line.resource, err))
	}
	t.leave()
}

// releaseLease releases a lease. If the lock service panics or calls runtime.Goexit, it returns that as an
// error: a panic on this goroutine would end the process, and after a Goexit Close would wait for ever.
func releaseLease(ctx context.Context, lease fence.Lease) error {
	var err error
	if failure := callback.Run(func() { err = lease.Release(ctx) }); failure != nil {
		return failure
	}
	return err
}

// releaseEarly releases the lease while a function still runs under it, which may never return. If it
// does, the lease is released as usual: a second Release does nothing.
func (o *kept[V]) releaseEarly() {
	t := o.line.turns
	t.mu.Lock()
	o.contended = overrun
	t.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		_ = releaseLease(ctx, o.lease) // the lock service goes on in the background
	}()
}

// releaseAndPass releases l's lease and passes on the turn, which the caller has.
func (t *Turns[V]) releaseAndPass(ctx context.Context, l *line[V]) {
	t.release(ctx, l)
	t.passTurn(ctx, l)
}

// contend is called when another process begins to wait. An idle lease is released at once, one in use
// when no more calls wait here, or after MaxHold between two calls.
func (o *kept[V]) contend() {
	t := o.line.turns
	t.mu.Lock()
	if o.contended == 0 {
		o.contended = t.now()
	}
	t.mu.Unlock()
	o.releaseIfIdle()
}

// lost is called when the lease is lost. It releases an idle one, and tells the function that runs under
// it.
func (o *kept[V]) lost() {
	t := o.line.turns
	t.mu.Lock()
	inUse := o.line.busy && o.line.lease == o
	t.mu.Unlock()
	o.endMu.Lock()
	onEnd := o.onEnd
	o.endMu.Unlock()
	if onEnd != nil {
		onEnd(o.lease.Err()) // mutant: functions-outlive-their-lease
	}
	var loss *fence.LeaseLostError
	if errors.As(o.lease.Err(), &loss) {
		t.Events.LeaseLost(loss, inUse)
	}
	o.releaseIfIdle()
}

// setOnEnd makes f, unless it is nil, learn of the end of the lease.
func (o *kept[V]) setOnEnd(f func(error)) {
	o.endMu.Lock()
	o.onEnd = f
	o.endMu.Unlock()
	if f == nil {
		return
	}
	if err := o.lease.Err(); err != nil { // else lost calls f
		f(err) // mutant: functions-begin-under-a-lost-lease
	}
}

// releaseIfIdle releases o unless a call uses it.
func (o *kept[V]) releaseIfIdle() {
	t := o.line.turns
	t.mu.Lock()
	took := t.takeIdle(o)
	t.mu.Unlock()
	if took {
		t.releaseAndPass(context.Background(), o.line)
	}
}
