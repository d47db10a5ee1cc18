package guard

import (
	"context"
	"errors"
	"sync"
	"time"
)

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
