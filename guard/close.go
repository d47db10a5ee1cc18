package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Close ends the Guard. Calls that have not begun to run, and later ones, return
// ErrClosed. Close releases what is owned, waits for the calls that run, and
// returns the errors of releases that failed or could not be confirmed within 5 s;
// such a resource is free when its lease has run out. When ctx ends first the
// contexts of running functions end with the cause ErrClosed, and so does the wait
// for the database of calls that have not come to run theirs.
//
// Close waits until ctx ends, and for up to 5 s in any case: a ctx that has ended
// already, as in a graceful stop, ends running functions at once and leaves the
// time to release. If that was too short, Close returns ctx's error while the
// functions finish in the background. It may be called again, to wait again, and
// returns the same errors.
func (g *Guard[Tx]) Close(ctx context.Context) error {
	k := g.keeper
	defer context.AfterFunc(ctx, func() { k.abort(ErrClosed) })()
	patient, stop := withReleaseTime(ctx)
	defer stop()
	k.closeLines(patient)
	select {
	case <-k.done:
		return k.releaseErrors()
	case <-patient.Done():
		return errors.Join(fmt.Errorf("guard: close: %w", ctx.Err()), k.releaseErrors())
	}
}

// withReleaseTime returns a context that ends when ctx has ended and releaseTimeout has
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

// closeLines turns away who waits and releases what is idle. What is busy is
// released when its turn is given back.
func (k *keeper) closeLines(ctx context.Context) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.closed = true
	k.beginClose(ErrClosed)
	var idle []*line
	for _, l := range k.lines {
		for e := l.waiting.Front(); e != nil; e = l.waiting.Front() {
			l.waiting.Remove(e)
			e.Value.(*waiter).wake(ErrClosed)
		}
		if k.takeIdle(l, l.ownership) {
			idle = append(idle, l)
		}
	}
	k.finish()
	k.mu.Unlock()
	k.releaseAll(ctx, idle)
}

// finish says that all is done, if it is. keeper.mu is held.
func (k *keeper) finish() {
	if k.closed && len(k.lines) == 0 && k.pending == 0 {
		close(k.done)
	}
}

// releaseErrors returns what went wrong with releases since Close began.
func (k *keeper) releaseErrors() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.unreleased...)
}

// maxCloseReleases is how many leases Close releases at a time.
const maxCloseReleases = 32

// releaseAll releases the ownership of lines whose turn the caller has. It returns when that is
// done or ctx has ended.
func (k *keeper) releaseAll(ctx context.Context, lines []*line) {
	next := make(chan *line, len(lines))
	for _, l := range lines {
		next <- l
	}
	close(next)
	var done sync.WaitGroup
	for range min(maxCloseReleases, len(lines)) {
		done.Go(func() {
			for l := range next {
				k.releaseAndPass(ctx, l)
			}
		})
	}
	done.Wait()
}

// beginCallersCall counts a call under grants of the caller's, so that Close waits for it. What an
// earlier one under the same lease has left in doubt is the call's to settle (G6).
// leases are those of states, or none.
func (k *keeper) beginCallersCall(ctx context.Context, states grantStates, leases []fence.Lease) error {
	if err := endError(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.pending++
	for i := range leases {
		states[i].unresolved = k.doubts[states[i].grant]
	}
	return nil
}

// endCallersCall ends what beginCallersCall began. inherited are the doubts of states then. One that
// remains is kept for as long as there is the lease.
func (k *keeper) endCallersCall(states grantStates, leases []fence.Lease, inherited []*UnknownOutcomeError) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, lease := range leases {
		s := states[i]
		switch {
		case s.unresolved != nil && s.unresolved != inherited[i]:
			k.doubts[s.grant] = s.unresolved
			context.AfterFunc(lease.Context(), func() { k.forget(s.grant) })
		case s.unresolved == nil && k.doubts[s.grant] == inherited[i]:
			delete(k.doubts, s.grant)
		}
	}
	k.pending--
	k.finish()
}

// forget drops what is in doubt under a grant whose lease has ended.
func (k *keeper) forget(grant fence.Grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.doubts, grant)
}
