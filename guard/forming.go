package guard

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// forming is where calls with batches on different resources meet. Each has the turn at its
// resource, and the claim. A call that finds few groups under way leads one at once; the
// others wait until one of those has ended, and then share the next. So groups grow with the
// load, and a lone call never waits. The calls keep no turn but their own while they wait,
// and a group takes only those that are here (L2).
type forming[Tx any] struct {
	limit int // how many groups may be under way when a call begins another one

	mu        sync.Mutex
	waiting   []*batchCall[Tx] // in order of arrival
	gathering int              // groups that are to take them as soon as the store has a connection
	underWay  int              // groups that have taken theirs
	overdue   *time.Timer      // runs while calls wait
	timed     bool             // overdue runs

	backoff
}

// newForming returns a forming without calls. As many groups as this process has processors,
// and at least two, keep both sides busy; with more, each has fewer calls and costs more.
func newForming[Tx any]() *forming[Tx] { return &forming[Tx]{limit: max(2, runtime.GOMAXPROCS(0))} }

// patience is how long calls wait before they begin another group all the same: those under
// way may be waiting for a lock.
const patience = 20 * time.Millisecond

// nextAlone reports whether the next call shares no group with calls on other resources.
func (f *forming[Tx]) nextAlone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.backoff.nextAlone()
}

// noteEnd notes how a group of n calls on several resources has ended.
func (f *forming[Tx]) noteEnd(failed bool, n int, blamed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backoff.noteEnd(failed, n, blamed)
}

// join waits until b leads a group, which then calls take and leave, or has ended in one. It
// fails if ctx ends before a group has taken b.
func (f *forming[Tx]) join(ctx context.Context, b *batchCall[Tx]) error {
	f.mu.Lock()
	if f.gathering == 0 && f.underWay < f.limit {
		f.gathering++
		f.mu.Unlock()
		b.state = leads
		return nil
	}
	b.ready = make(chan struct{})
	f.waiting = append(f.waiting, b)
	f.appoint()
	f.mu.Unlock()
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	if i := slices.Index(f.waiting, b); i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
		f.mu.Unlock()
		return endError(ctx)
	}
	f.mu.Unlock()
	<-b.ready // at once, unless a group has taken b
	return nil
}

// appoint makes the first call that waits lead another group, if it is time for one. A full
// group needs no room. The caller holds f.mu.
func (f *forming[Tx]) appoint() {
	if len(f.waiting) > 0 && f.gathering == 0 && (f.underWay < f.limit || len(f.waiting) >= maxBatchCalls) {
		f.lead()
	}
	f.watch()
}

// lead makes the first call that waits lead a group. The caller holds f.mu.
func (f *forming[Tx]) lead() {
	b := f.waiting[0]
	f.waiting = slices.Delete(f.waiting, 0, 1)
	f.gathering++
	b.state = leads
	close(b.ready)
}

// watch starts or stops the timer. The caller holds f.mu.
func (f *forming[Tx]) watch() {
	wait := len(f.waiting) > 0
	switch {
	case wait == f.timed:
	case !wait:
		f.overdue.Stop()
	case f.overdue == nil:
		f.overdue = time.AfterFunc(patience, f.waitedLong)
	default:
		f.overdue.Reset(patience)
	}
	f.timed = wait
}

// waitedLong begins another group for the calls that wait, however many are under way.
func (f *forming[Tx]) waitedLong() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timed = false
	if len(f.waiting) > 0 {
		f.lead()
	}
	f.watch()
}

// take takes up to limit calls out of those that wait, for a group that is under way from
// now on.
func (f *forming[Tx]) take(limit int) []*batchCall[Tx] {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gathering--
	f.underWay++
	n := min(limit, len(f.waiting))
	taken := slices.Clone(f.waiting[:n])
	f.waiting = slices.Delete(f.waiting, 0, n)
	f.appoint()
	return taken
}

// leave ends a group, which has taken calls or not.
func (f *forming[Tx]) leave(taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if taken {
		f.underWay--
	} else {
		f.gathering--
	}
	f.appoint()
}

// maxAlone bounds how many calls run alone after groups have failed.
const maxAlone = 256

// backoff makes calls run alone for a while after groups that failed: in each group the same
// operation might fail again.
type backoff struct {
	alone int32 // how many calls to come do
	last  int32 // what alone was last set to, or 1 after one failure with a call to blame
}

// nextAlone reports whether the next call runs alone, and counts it if so.
func (b *backoff) nextAlone() bool {
	if b.alone == 0 {
		return false
	}
	b.alone--
	return true
}

// noteEnd notes how a group of n calls has ended. blamed says that one of them is known to
// have made it fail: the others will succeed without it, unless failures are the rule.
func (b *backoff) noteEnd(failed bool, n int, blamed bool) {
	switch {
	case !failed:
		b.last = 0
		return
	case blamed && b.last == 0:
		b.last = 1
		return
	case blamed:
		n = 2
	}
	b.last = min(maxAlone, 2*(b.last+int32(n)-1))
	b.alone = b.last
}
