package guard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// closeLines makes the calls that wait for a turn fail with ErrClosed, and releases the ownerships
// that no call uses. The others are released when their call ends.
func (k *keeper) closeLines(ctx context.Context) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.closed = true
	k.beginClose(ErrClosed)
	k.stopExpiry()
	var idle []*line
	for _, l := range k.lines {
		for w := l.waiting.first; w != nil; w = l.waiting.first {
			l.waiting.remove(w)
			w.wake(turnedAway)
		}
		if l.ownership != nil && k.takeIdle(l.ownership) {
			idle = append(idle, l)
		}
	}
	k.finish()
	k.mu.Unlock()
	k.releaseAll(ctx, idle)
}

// finish closes k.done if nothing is left after Close. The caller holds keeper.mu.
func (k *keeper) finish() {
	if k.closed && len(k.lines) == 0 && k.pending == 0 {
		close(k.done)
	}
}

// releaseErrors returns the errors of releases since Close began.
func (k *keeper) releaseErrors() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.unreleased...)
}

// maxCloseReleases bounds how many leases Close releases at a time.
const maxCloseReleases = 32

// releaseAll releases the ownerships of lines whose turns the caller has. It returns when
// that is done or ctx has ended.
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

// withReleaseTime returns a context that ends when ctx has ended, but not before
// releaseTimeout has passed.
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
