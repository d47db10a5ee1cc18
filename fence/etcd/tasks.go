package etcd

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// tasks runs what goes on in the background, until stop.
type tasks struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

func newTasks() *tasks {
	t := &tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// start runs f in a goroutine, with a context that stop ends; not after stop.
func (t *tasks) start(f func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.running.Go(func() { f(t.ctx) })
	}
}

// stop ends all tasks and waits for them.
func (t *tasks) stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.cancel()
	t.running.Wait()
}

// pause waits before the n-th repetition, from 0: longer each time, up to two
// seconds, and at random so that many don't come at once. It returns early when
// ctx or over ends.
func pause(ctx context.Context, n int, over <-chan struct{}) {
	longest := min(50*time.Millisecond<<min(n, 6), 2*time.Second)
	timer := time.NewTimer(longest/2 + rand.N(longest/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-over:
	}
}
