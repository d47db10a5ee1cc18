package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// ClosableLocker is a fence.Locker that a process makes and closes.
type ClosableLocker interface {
	fence.Locker

	// Close ends all leases with fence.LossClosed and frees their resources; calls that wait, and later ones, fail
	// with fence.ErrClosed. A second call returns nil.
	Close(ctx context.Context) error
}

// LockerHarness is a lock service for TestLocker, which uses names of its own.
type LockerHarness struct {
	// New returns the Locker of another process, whose leases outlive the test unless they are lost. TestLocker
	// closes it.
	New func(t testing.TB) ClosableLocker
	// Lose makes the service end all leases of l as if their time to live were over: none can be renewed, and
	// others may acquire what they had.
	Lose func(t testing.TB, l ClosableLocker)
	// Restart stops the service and starts it with the data that it had.
	Restart func(t testing.TB)
	// MissDeadline makes the holder's deadline of lease pass, and nothing else notice it, as when a process was
	// stopped whose timers are late. Without it, TestLocker doesn't try that.
	MissDeadline func(t testing.TB, lease fence.Lease)
	// Ordered says that Acquire serves processes in order of arrival.
	Ordered bool
}

// TestLocker runs the contract of a lock service: fence.Locker and fence.Lease, fence.Election if the Locker is a
// fence.Elector, and F1 to F3 without their times. Call it from a test that isn't parallel: its last part looks for
// goroutines that a closed Locker has left.
func TestLocker(t *testing.T, h LockerHarness) {
	t.Run("parts", func(t *testing.T) {
		for _, p := range lockerParts {
			if p.name == "order of arrival" && !h.Ordered || p.name == "deadline" && h.MissDeadline == nil {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.run(newLockerRun(t, h))
			})
		}
	})
	t.Run("restart", func(t *testing.T) { newLockerRun(t, h).restart() })
	t.Run("leak", func(t *testing.T) { newLockerRun(t, h).leak() })
}

var lockerParts = []struct {
	name string
	run  func(r *lockerRun)
}{
	{"exclusion", (*lockerRun).exclusion},
	{"order of arrival", (*lockerRun).order},
	{"invalid names", (*lockerRun).invalid},
	{"try", (*lockerRun).try},
	{"try all", (*lockerRun).tryAll},
	{"cancel", (*lockerRun).cancel},
	{"release", (*lockerRun).release},
	{"release without a context", (*lockerRun).releaseAnyhow},
	{"loss", (*lockerRun).loss},
	{"deadline", (*lockerRun).deadline},
	{"contention", (*lockerRun).contention},
	{"close", (*lockerRun).close},
	{"election", (*lockerRun).election},
}

type lockerRun struct {
	*testing.T
	LockerHarness
	ctx   context.Context
	name  string      // of the resource of this run
	wrong chan string // calls that should not have come
}

// never returns a function that must not be called. It may come when the test has ended, so it fails nothing itself.
func (r *lockerRun) never(what string) func() {
	return func() {
		select {
		case r.wrong <- what:
		default:
		}
	}
}

// lockerPatience ends a wait that has failed, also on a slow machine.
var lockerPatience = time.Minute

func newLockerRun(t *testing.T, h LockerHarness) *lockerRun {
	ctx, cancel := context.WithTimeout(t.Context(), 3*lockerPatience)
	t.Cleanup(cancel)
	r := &lockerRun{t, h, ctx, fmt.Sprintf("guardtest/%016x", rand.Uint64()), make(chan string, 1)}
	t.Cleanup(func() {
		select {
		case what := <-r.wrong:
			t.Error(what)
		default:
		}
	})
	return r
}

func (r *lockerRun) locker() ClosableLocker {
	l := r.New(r.T)
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lockerPatience)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			r.Errorf("close: %v", err)
		}
	})
	return l
}

func (r *lockerRun) check(ok bool, format string, args ...any) {
	r.Helper()
	if !ok {
		r.Fatalf(format, args...)
	}
}

func (r *lockerRun) is(err error, wants ...error) {
	r.Helper()
	for _, want := range wants {
		r.check(errors.Is(err, want), "got the error %v, want %v", err, want)
	}
}

func (r *lockerRun) await(what string, c <-chan struct{}) {
	r.Helper()
	select {
	case <-c:
	case <-time.After(lockerPatience):
		r.Fatalf("%s: waited in vain", what)
	}
}

func (r *lockerRun) acquire(l fence.Locker) fence.Lease {
	r.Helper()
	lease, err := l.Acquire(r.ctx, r.name)
	r.check(err == nil, "Acquire: %v", err)
	g := lease.Grant()
	r.check(g.Validate() == nil && g.Resource == r.name, "Acquire(%q) granted %+v", r.name, g)
	return lease
}

func (r *lockerRun) free(lease fence.Lease) {
	r.Helper()
	err := lease.Release(r.ctx)
	r.check(err == nil, "Release: %v", err)
}

// waiting is a call of Acquire in a goroutine of its own.
type waiting struct {
	done  chan struct{}
	lease fence.Lease
	err   error
}

func (r *lockerRun) acquiring(ctx context.Context, l fence.Locker) *waiting {
	w := &waiting{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Acquire(ctx, r.name)
	}()
	return w
}

// queued returns a call of another process that waits for held's resource. Nothing else may wait for it.
func (r *lockerRun) queued(ctx context.Context, held fence.Lease, l fence.Locker) *waiting {
	r.Helper()
	contended := make(chan struct{})
	held.AfterContended(func() { close(contended) })
	w := r.acquiring(ctx, l)
	r.await("AfterContended, while another process waits", contended)
	return w
}

func (r *lockerRun) granted(w *waiting) fence.Lease {
	r.Helper()
	r.await("Acquire, when its turn has come", w.done)
	r.check(w.err == nil, "Acquire: %v", w.err)
	return w.lease
}

func (r *lockerRun) locked(l fence.Locker, holder fence.Grant) {
	r.Helper()
	_, err := l.TryAcquire(r.ctx, r.name)
	var locked *fence.LockedError
	r.is(err, fence.ErrLocked)
	r.check(errors.As(err, &locked) && locked.Resource == r.name, "TryAcquire: got %#v, want a *fence.LockedError", err)
	r.check(locked.Holder == "" || locked.Holder == holder.Holder, "TryAcquire names the holder %q, want %q", locked.Holder, holder.Holder)
}

func (r *lockerRun) exclusion() {
	var (
		running sync.WaitGroup
		holding sync.Mutex // by TryLock alone: the Locker has to exclude
		grants  []fence.Grant
	)
	for range 3 {
		l := r.locker()
		for range 3 {
			running.Go(func() {
				for range 3 {
					lease, err := l.Acquire(r.ctx, r.name)
					if err != nil {
						r.Errorf("Acquire: %v", err)
						return
					}
					if !holding.TryLock() {
						r.Errorf("two own %s", r.name)
						return
					}
					grants = append(grants, lease.Grant())
					holding.Unlock()
					if err := lease.Release(r.ctx); err != nil {
						r.Errorf("Release: %v", err)
					}
				}
			})
		}
	}
	running.Wait()
	holders := map[string]bool{}
	for i, g := range grants {
		r.check(i == 0 || g.Compare(grants[i-1]) > 0, "%v was granted after %v", g, grants[max(0, i-1)])
		r.check(!holders[g.Holder], "two grants have the holder %s", g.Holder)
		holders[g.Holder] = true
	}
}

// Each waits before the next begins to: what shows it is the contention of the one before.
func (r *lockerRun) order() {
	held := r.acquire(r.locker())
	first := r.queued(r.ctx, held, r.locker())
	for range 3 {
		second := r.acquiring(r.ctx, r.locker())
		r.free(held)
		select {
		case <-first.done:
		case <-second.done:
			r.Fatalf("a call that came later was served first")
		}
		held = r.granted(first)
		contended := make(chan struct{})
		held.AfterContended(func() { close(contended) })
		r.await("AfterContended, while another process waits", contended)
		first = second
	}
	r.free(held)
	r.free(r.granted(first))
}

func (r *lockerRun) invalid() {
	l := r.locker()
	for _, name := range []string{"", "a\nb", "\xff", strings.Repeat("x", fence.MaxResourceLen+1)} {
		_, err := l.Acquire(r.ctx, name)
		r.is(err, fence.ErrInvalid)
		_, err = l.TryAcquire(r.ctx, name)
		r.is(err, fence.ErrInvalid)
		_, err = l.TryAcquireAll(r.ctx, r.name, name)
		r.is(err, fence.ErrInvalid)
	}
	longest := *r
	longest.name = strings.Repeat("é", fence.MaxResourceLen/2)
	longest.free(longest.acquire(l))
}

func (r *lockerRun) try() {
	a, b := r.locker(), r.locker()
	held, err := a.TryAcquire(r.ctx, r.name)
	r.check(err == nil, "TryAcquire of a free resource: %v", err)
	r.locked(a, held.Grant())
	r.locked(b, held.Grant())
	r.free(held)
	next := r.acquire(b) // what has failed is in nobody's way
	r.check(next.Grant().Compare(held.Grant()) > 0, "%v was granted after %v", next.Grant(), held.Grant())
	r.free(next)
}

func (r *lockerRun) tryAll() {
	a, b := r.locker(), r.locker()
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprintf("%s/%d", r.name, i))
	}
	taken, err := a.Acquire(r.ctx, names[2])
	r.check(err == nil, "Acquire: %v", err)
	leases, err := b.TryAcquireAll(r.ctx, names...)
	r.check(err == nil, "TryAcquireAll: %v", err)
	r.check(len(leases) == 2, "TryAcquireAll returned %d leases, want those of the two before the one that is taken", len(leases))
	for i, lease := range leases {
		r.check(lease.Grant().Resource == names[i], "lease %d is that of %s", i, lease.Grant().Resource)
	}
	behind, err := a.TryAcquire(r.ctx, names[3])
	r.check(err == nil, "TryAcquireAll left something behind the one that was taken: %v", err)
	for _, lease := range append(leases, taken, behind) {
		r.free(lease)
	}
	_, err = b.TryAcquireAll(r.ended(), names...)
	r.is(err, context.Canceled)
	for i, name := range names { // after the error nothing is held
		lease, err := a.Acquire(r.ctx, name)
		r.check(err == nil, "Acquire of resource %d: %v", i, err)
		r.free(lease)
	}
	none, err := b.TryAcquireAll(r.ctx)
	r.check(err == nil && len(none) == 0, "TryAcquireAll of nothing: %v, %v", none, err)
}

func (r *lockerRun) ended() context.Context {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	return ctx
}

func (r *lockerRun) cancel() {
	held, l := r.acquire(r.locker()), r.locker()
	var next *waiting
	give := func() error {
		ctx, cancel := context.WithCancel(r.ctx)
		gives := r.queued(ctx, held, l)
		next = r.acquiring(r.ctx, r.locker())
		cancel()
		r.await("Acquire, when its context has ended", gives.done)
		r.is(gives.err, context.Canceled)
		return gives.err
	}
	// The holder may know of the call before the answer comes that tells the call so.
	for deadline := time.Now().Add(lockerPatience); !errors.Is(give(), fence.ErrLocked); {
		r.check(time.Now().Before(deadline), "Acquire that gives up isn't fence.ErrLocked")
		r.free(held)
		held = r.granted(next)
	}
	r.free(held)
	r.free(r.granted(next)) // it isn't in the way
	_, err := r.locker().Acquire(r.ended(), r.name)
	r.is(err, context.Canceled)
	r.free(r.acquire(r.locker()))
}

func (r *lockerRun) release() {
	a := r.locker()
	held := r.acquire(a)
	r.check(held.Err() == nil && held.Context().Err() == nil && held.Remaining() > 0, "a lease that is held: %v, %v left", held.Err(), held.Remaining())
	held.AfterLost(r.never("AfterLost was called after a release"))
	r.free(held)
	r.await("Done, after Release", held.Done())
	r.is(held.Err(), fence.ErrReleased)
	r.is(context.Cause(held.Context()), fence.ErrReleased)
	r.check(held.Remaining() == 0, "%v remain after the release", held.Remaining())
	held.AfterLost(r.never("AfterLost was called after a release"))
	next := r.acquire(r.locker())
	r.check(next.Grant().Compare(held.Grant()) > 0, "%v was granted after %v", next.Grant(), held.Grant())
	r.free(held) // does nothing
	r.locked(a, next.Grant())
	r.check(next.Err() == nil, "the release of an earlier lease ended this one: %v", next.Err())
	r.free(next)
}

// A nil context never ends; one that has ended doesn't keep the resource from others.
func (r *lockerRun) releaseAnyhow() {
	a, b := r.locker(), r.locker()
	held := r.acquire(a)
	//lint:ignore SA1012 fence.Lease allows it
	err := held.Release(nil)
	r.check(err == nil, "Release(nil): %v", err)
	held = r.acquire(a)
	if err := held.Release(r.ended()); err != nil {
		r.is(err, context.Canceled)
	}
	r.is(held.Err(), fence.ErrReleased)
	r.free(r.acquire(b))
}

func (r *lockerRun) loss() {
	a, b := r.locker(), r.locker()
	held := r.acquire(a)
	lost := make(chan struct{})
	held.AfterLost(func() {
		if held.Err() == nil {
			r.Error("AfterLost was called before Err had the loss")
		}
		close(lost)
	})
	next := r.queued(r.ctx, held, b)
	r.Lose(r.T, a)
	r.await("AfterLost", lost)
	r.await("Done, after the loss", held.Done())
	var loss *fence.LeaseLostError
	r.is(held.Err(), fence.ErrLeaseLost)
	r.check(errors.As(context.Cause(held.Context()), &loss) && loss.Grant == held.Grant() && loss.Reason != "", "the loss is %#v", loss)
	r.check(held.Remaining() == 0, "%v remain after the loss", held.Remaining())
	again := make(chan struct{})
	held.AfterLost(func() { close(again) })
	r.await("AfterLost, after the loss", again)
	got := r.granted(next)
	r.check(got.Grant().Compare(held.Grant()) > 0, "%v was granted after %v", got.Grant(), held.Grant())
	r.free(held) // does nothing
	r.locked(a, got.Grant())
	r.free(got)
	anew := r.acquire(a)
	r.check(anew.Grant().Compare(got.Grant()) > 0, "%v was granted after %v", anew.Grant(), got.Grant())
	r.free(anew)
}

func (r *lockerRun) contention() {
	a, b := r.locker(), r.locker()
	held := r.acquire(a)
	stop := held.AfterContended(r.never("AfterContended was called after it was stopped"))
	r.check(stop(), "stop of a call that nothing has made returned false")
	r.check(!stop(), "the second stop returned true")
	own, cancel := context.WithCancel(r.ctx)
	mine := r.acquiring(own, a)
	stop = held.AfterContended(r.never("AfterContended was called though only this process waits"))
	cancel()
	r.await("Acquire, when its context has ended", mine.done)
	r.check(stop(), "AfterContended was called though only this process waits")

	next := r.queued(r.ctx, held, b)
	atOnce := make(chan struct{})
	stop = held.AfterContended(func() { close(atOnce) })
	r.await("AfterContended, while another process waits already", atOnce)
	r.check(!stop(), "stop of a call that was made returned true")
	r.free(held)
	held.AfterContended(r.never("AfterContended was called after the end"))
	got := r.granted(next)
	got.AfterContended(r.never("AfterContended was called though nobody waits"))
	r.free(got)
}

// Each way to ask compares the deadline, so each has a lease of its own.
func (r *lockerRun) deadline() {
	l := r.locker()
	for what, over := range map[string]func(lease fence.Lease, ctx context.Context) bool{
		"Err":           func(lease fence.Lease, _ context.Context) bool { return lease.Err() != nil },
		"Context().Err": func(_ fence.Lease, ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(lease fence.Lease, _ context.Context) bool {
			select {
			case <-lease.Done():
				return true
			default:
				return false
			}
		},
		"AfterLost": func(lease fence.Lease, _ context.Context) bool {
			lost := make(chan struct{})
			lease.AfterLost(func() { close(lost) })
			r.await("AfterLost, after the deadline", lost)
			return true
		},
		"AfterContended": func(lease fence.Lease, _ context.Context) bool { return !lease.AfterContended(r.never("contended"))() },
	} {
		one := *r
		one.name += "/" + what
		lease := one.acquire(l)
		ctx, told := lease.Context(), make(chan struct{})
		lease.AfterLost(func() { close(told) })
		r.MissDeadline(r.T, lease)
		r.check(over(lease, ctx), "%s doesn't see that the deadline has passed", what)
		var loss *fence.LeaseLostError
		r.check(errors.As(lease.Err(), &loss) && loss.Reason == fence.LossDeadline, "the deadline ended the lease with %v", lease.Err())
		r.is(context.Cause(ctx), lease.Err())
		r.await("AfterLost", told)
		r.check(lease.Remaining() == 0, "Remaining is not 0 after the end")
		err := lease.Release(r.ctx)
		r.check(err == nil, "Release after the deadline: %v", err)
	}
}

func (r *lockerRun) close() {
	a, b := r.locker(), r.locker()
	held := r.acquire(a)
	other := *r
	other.name += "/other"
	theirs := other.acquire(b)
	waits := other.queued(r.ctx, theirs, a)
	err := a.Close(r.ctx)
	r.check(err == nil, "Close: %v", err)
	r.await("Done, after Close", held.Done())
	var loss *fence.LeaseLostError
	r.check(errors.As(held.Err(), &loss) && loss.Reason == fence.LossClosed, "Close ended the lease with %v", held.Err())
	r.await("Acquire, after Close", waits.done)
	r.is(waits.err, fence.ErrClosed)
	_, err = a.Acquire(r.ctx, r.name)
	r.is(err, fence.ErrClosed)
	_, err = a.TryAcquire(r.ctx, r.name)
	r.is(err, fence.ErrClosed)
	_, err = a.TryAcquireAll(r.ctx, r.name, r.name+"/2")
	r.is(err, fence.ErrClosed)
	err = held.Release(r.ctx)
	r.check(err == nil, "Release after Close: %v", err)
	next := r.acquire(b)
	r.check(next.Grant().Compare(held.Grant()) > 0, "%v was granted after %v", next.Grant(), held.Grant())
	other.free(theirs)
	r.free(next)
	err = a.Close(r.ctx)
	r.check(err == nil, "the second Close: %v", err)
}

// atLast acquires from a service that may have just been away.
func (r *lockerRun) atLast(l fence.Locker) fence.Lease {
	r.Helper()
	for {
		lease, err := l.Acquire(r.ctx, r.name)
		if err == nil {
			return lease
		}
		r.is(err, fence.ErrUnavailable)
		r.check(r.ctx.Err() == nil, "Acquire after a restart: %v", err)
	}
}

func (r *lockerRun) restart() {
	a, b := r.locker(), r.locker()
	held := r.acquire(a)
	waits := r.queued(r.ctx, held, b)
	r.Restart(r.T)
	if err := held.Err(); err != nil {
		r.is(err, fence.ErrLeaseLost)
	}
	for held.Release(r.ctx) != nil {
		r.check(r.ctx.Err() == nil, "Release after a restart failed for %v", lockerPatience)
	}
	r.await("Acquire, after a restart", waits.done)
	next := waits.lease
	if waits.err != nil {
		r.is(waits.err, fence.ErrUnavailable)
		next = r.atLast(b)
	}
	r.check(next.Grant().Compare(held.Grant()) > 0, "%v was granted after %v", next.Grant(), held.Grant())
	r.free(next)
	r.free(r.atLast(r.locker()))
}

// leak looks for goroutines that run code of the Locker's package, or of those below it.
func (r *lockerRun) leak() {
	l, other := r.locker(), r.locker()
	before := goroutinesOf(l)
	held := r.acquire(l)
	ctx, cancel := context.WithCancel(r.ctx)
	waits := r.acquiring(ctx, l)
	cancel()
	r.await("Acquire, when its context has ended", waits.done)
	r.Lose(r.T, l)
	r.await("Done, after the loss", held.Done())
	r.acquire(l)
	for _, c := range []ClosableLocker{l, other} {
		err := c.Close(r.ctx)
		r.check(err == nil, "Close: %v", err)
	}
	for deadline := time.Now().Add(lockerPatience); ; time.Sleep(time.Millisecond) {
		left := slices.DeleteFunc(goroutinesOf(l), func(g string) bool {
			return slices.ContainsFunc(before, func(b string) bool { return header(b) == header(g) })
		})
		if len(left) == 0 {
			return
		}
		r.check(time.Now().Before(deadline), "a closed Locker left:\n%s", strings.Join(left, "\n\n"))
	}
}

func goroutinesOf(l ClosableLocker) (all []string) {
	pkg := reflect.Indirect(reflect.ValueOf(l)).Type().PkgPath()
	stacks := make([]byte, 1<<20)
	for len(stacks) < 1<<28 {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	for _, g := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(g, pkg) && !strings.Contains(g, "lockerRun") {
			all = append(all, g)
		}
	}
	return all
}

// header is the goroutine's number.
func header(stack string) string {
	number, _, _ := strings.Cut(stack, " [")
	return number
}

// BenchmarkLocker measures a lock service: a lock that nobody else wants, one that 8 and 64 processes wait for, and a
// fleet of 4 processes whose 16 callers take one of 1,000. It reports the locks per second, and of one lock the time
// from a release to the next grant as median and 99th percentile.
func BenchmarkLocker(b *testing.B, h LockerHarness) {
	for _, c := range []struct{ processes, callers, locks int }{{1, 1, 1}, {8, 1, 1}, {64, 1, 1}, {4, 4, 1000}} {
		b.Run(fmt.Sprintf("processes=%d/locks=%d", c.processes, c.locks), func(b *testing.B) {
			name := fmt.Sprintf("guardtest/%016x", rand.Uint64())
			lockers := make([]ClosableLocker, c.processes)
			for i := range lockers {
				lockers[i] = h.New(b)
				defer lockers[i].Close(context.Background())
				warm, err := lockers[i].Acquire(b.Context(), fmt.Sprintf("%s/warm/%d", name, i))
				if err != nil {
					b.Fatal(err)
				}
				_ = warm.Release(b.Context())
			}
			var (
				running  sync.WaitGroup
				left     atomic.Int64
				released time.Time // the lock guards it
				handed   []time.Duration
			)
			left.Store(int64(b.N))
			take := func(l ClosableLocker) error {
				lease, err := l.Acquire(b.Context(), fmt.Sprintf("%s/%d", name, rand.IntN(c.locks)))
				if err != nil {
					return err
				}
				if c.locks == 1 {
					if !released.IsZero() {
						handed = append(handed, time.Since(released))
					}
					released = time.Now()
				}
				return lease.Release(b.Context())
			}
			b.ResetTimer()
			for _, l := range lockers {
				for range c.callers {
					running.Go(func() {
						for left.Add(-1) >= 0 {
							if err := take(l); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
			}
			running.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
			if slices.Sort(handed); len(handed) > 0 {
				ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
				b.ReportMetric(ms(handed[len(handed)/2]), "median-ms")
				b.ReportMetric(ms(handed[len(handed)*99/100]), "p99-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
