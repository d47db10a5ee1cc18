package guard

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// forming is where calls with batches on different resources meet. Each has the turn at its
// resource, and the claim. A call that finds fewer than limit groups under way leads one at once;
// the others wait until one of those has ended, and then share the next. So groups grow with the
// load, and a call that no other meets never waits. While calls wait they have no turn but their
// own, and a group takes only calls that are here (L2).
type forming[Tx any] struct {
	limit int // how many groups may be under way when a call begins another one

	mu        sync.Mutex
	waiting   []*batchCall[Tx] // in order of arrival
	gathering int              // groups that will take calls once the store has a connection for them
	underWay  int              // groups that have taken their calls
	overdue   *time.Timer      // calls waitedLong; nil before its first use
	armed     bool             // overdue will call it

	backoff
}

// newForming returns a forming without calls. As many groups as there are processors, and at least
// two, keep client and server busy; with more groups each has fewer calls, at the same cost.
func newForming[Tx any]() *forming[Tx] { return &forming[Tx]{limit: max(2, runtime.GOMAXPROCS(0))} }

// patience is how long calls wait before one leads a group although limit groups are under way:
// those may be waiting for a lock.
const patience = 20 * time.Millisecond

// nextAlone reports whether the call that asks shares no group with calls on other resources,
// since earlier ones failed.
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

// join waits until b leads a group, or until a group that took b has ended: b.state says which. It
// fails if ctx ends before either. A group that b leads uses take when its transaction begins, and
// leave when it has ended.
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

// appoint makes the first call that waits lead a group, if fewer than limit are under way, or
// enough calls wait for a full one. The caller holds f.mu.
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

// watch arms the timer if calls wait, and stops it if none do. The caller holds f.mu.
func (f *forming[Tx]) watch() {
	wait := len(f.waiting) > 0
	switch {
	case wait == f.armed:
	case !wait:
		f.overdue.Stop()
	case f.overdue == nil:
		f.overdue = time.AfterFunc(patience, f.waitedLong)
	default:
		f.overdue.Reset(patience)
	}
	f.armed = wait
}

// waitedLong makes the first call that waits lead a group, however many are under way.
func (f *forming[Tx]) waitedLong() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
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

// leave ends a group. taken says whether take was called for it.
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

// backoff makes some calls run alone after groups have failed, more of them each time: the same
// operation might make every group fail.
type backoff struct {
	alone int16 // how many calls to come run alone
	last  int16 // what alone was last set to; 1 after a single failure with a call to blame
}

// nextAlone reports whether the call that asks runs alone, and counts it if so.
func (b *backoff) nextAlone() bool {
	if b.alone == 0 {
		return false
	}
	b.alone--
	return true
}

// noteEnd notes how a group of n calls has ended. blamed says that one of them is known to have
// made it fail. The others should succeed without it, so only a second such failure in a row
// makes calls run alone.
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
	b.last = min(maxAlone, 2*(b.last+int16(n)-1))
	b.alone = b.last
}
