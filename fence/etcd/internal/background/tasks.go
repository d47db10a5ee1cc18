// Package background runs the work that continues after a call has returned.
package background

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Tasks runs functions in the background, until Stop. Its methods may be called from
// several goroutines.
type Tasks struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

// New returns Tasks that run nothing yet.
func New() *Tasks {
	t := &Tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Start runs f in a goroutine, with a context that Stop ends; not after Stop.
func (t *Tasks) Start(f func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.running.Go(func() { f(t.ctx) })
	}
}

// Stop ends all tasks and waits for them.
func (t *Tasks) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.cancel()
	t.running.Wait()
}

// Pause waits before the n-th repetition, from 0: longer each time, up to two seconds, and
// at random so that many callers don't retry at once. It returns early when ctx or over
// ends.
func Pause(ctx context.Context, n int, over <-chan struct{}) {
	longest := min(50*time.Millisecond<<min(n, 6), 2*time.Second)
	timer := time.NewTimer(longest/2 + rand.N(longest/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-over:
	}
}
