package session

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Tasks run in the background of a Locker.
type Tasks struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

func NewTasks() *Tasks {
	t := &Tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func (t *Tasks) Start(f func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.running.Go(func() { f(t.ctx) })
	}
}

func (t *Tasks) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.cancel()
	t.running.Wait()
}

func Pause(ctx context.Context, n int) {
	longest := min(50*time.Millisecond<<min(n, 6), 2*time.Second)
	select {
	case <-time.After(longest/2 + rand.N(longest/2)):
	case <-ctx.Done():
	}
}
