package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// quantum is how many keys a process may have in one queue, for calls that hold the
// resource or wait for it. Further calls wait in the process. So a call elsewhere gets its
// turn after at most that many of each process.
const quantum = 32

// maxPlaces is how many calls may have a position at the same time. With MutexKeys the
// acquisitions of a session share one key.
func (l *line) maxPlaces() int32 {
	if l.queues.cluster.Keys.Mutex {
		return 1 // mutant: goroutines-share-the-key-of-the-session
	}
	return quantum // mutant: quantum-has-no-end
}

// tryTake takes a place if no other call of this process has or awaits one. Otherwise it
// returns the holder as far as it is known.
func (l *line) tryTake() (free bool, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places > 0 {
		return false, l.holder()
	}
	l.places++
	return true, ""
}

// wait waits for a place, in order of arrival.
func (l *line) wait(ctx context.Context) error {
	l.mu.Lock()
	if l.places < l.maxPlaces() {
		l.places++
		l.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	l.waiting = append(l.waiting, mine)
	l.contend(nil)
	l.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.giveUp(mine)
		return l.lockedHere(ctx)
	case <-l.queues.closed:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.giveUp(mine)
		return cluster.ErrLockerClosed
	}
}

// lockedHere is the error of a call that ctx ended while it waited for other calls of this
// process. Callers hold mu.
func (l *line) lockedHere(ctx context.Context) error {
	locked := &fence.LockedError{Resource: l.resource, Holder: l.holder()}
	return fmt.Errorf("%w: waiting for another call of this process, or for a lease that it holds (a leader writes through Guard.UnderLease): %w", locked, cluster.EndOf(ctx))
}

// giveUp leaves the queue for a place. If the place has just come it passes it on. Callers
// hold mu.
func (l *line) giveUp(mine chan struct{}) {
	if i := slices.Index(l.waiting, mine); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return
	}
	l.passOn()
}

// passOn gives a place to the call that has waited longest. Callers hold mu.
func (l *line) passOn() {
	if len(l.waiting) == 0 {
		l.places--
		return
	}
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
}

// abandonPlace gives up the place of a call that has no position.
func (l *line) abandonPlace() {
	l.mu.Lock()
	l.passOn()
	l.mu.Unlock()
	l.leave()
}

// leavePlace passes on p's place in the line. Callers hold the line's mu.
func (p *Position) leavePlace() {
	if p.placed {
		p.placed = false
		p.line.passOn()
	}
}
