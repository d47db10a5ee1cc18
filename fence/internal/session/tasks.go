package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
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

// Closing lets a Locker be closed once.
type Closing struct {
	once             sync.Once
	closed, finished chan struct{}
}

func NewClosing() *Closing {
	return &Closing{closed: make(chan struct{}), finished: make(chan struct{})}
}

// Closed is closed when Close is called.
func (c *Closing) Closed() <-chan struct{} { return c.closed }

func (c *Closing) IsClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Close calls f, for which it leaves the time of one request at least. A second call waits for the first.
func (c *Closing) Close(ctx context.Context, request time.Duration, what string, f func(context.Context) error) error {
	if ctx.Err() != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), request)
		defer cancel()
		ctx = last
	}
	first := false
	c.once.Do(func() {
		first = true
		close(c.closed)
	})
	if !first {
		select {
		case <-c.finished:
			return nil
		case <-ctx.Done():
			return Ended(ctx, what)
		}
	}
	defer close(c.finished)
	return f(ctx)
}

func DefaultLabel() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// NewHolder is label and a random number, of one acquisition alone.
func NewHolder(label string) string { return fmt.Sprintf("%s-%016x", label, rand.Uint64()) }
