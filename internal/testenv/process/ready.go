package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

// pollInterval is how often a starting server is asked whether it is there.
const pollInterval = 10 * time.Millisecond

// Poll calls ask until it succeeds. When ctx ends first, the error holds the
// cause and what ask said last.
func Poll(ctx context.Context, ask func(context.Context) error) error {
	return PollEvery(ctx, pollInterval, ask)
}

// PollEvery is Poll with a longer pause between two calls.
func PollEvery(ctx context.Context, pause time.Duration, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// Listening asks whether a server accepts connections at an address.
func Listening(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// whileAlive returns a context that the end of the process ends too, with a cause that says so.
func whileAlive(ctx context.Context, p *child.Process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.Done():
			cancel(fmt.Errorf("it ended: %v", p.Wait()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Shared is a server that the tests of this binary use together: started on first use,
// stopped after the tests.
type Shared[S interface{ Stop(context.Context) error }] struct {
	start func(context.Context) (S, error)

	once   sync.Once
	server S
	err    error
}

// NewShared returns a server that start is going to start.
func NewShared[S interface{ Stop(context.Context) error }](start func(context.Context) (S, error)) *Shared[S] {
	return &Shared[S]{start: start}
}

// Get starts the server if no test has; a failed start isn't tried again.
func (s *Shared[S]) Get() (S, error) {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), StartBound)
		defer cancel()
		if s.server, s.err = s.start(ctx); s.err == nil {
			AfterTests(s.server.Stop)
		}
	})
	return s.server, s.err
}

var cleanups struct {
	mu    sync.Mutex
	calls []func(context.Context) error
}

// AfterTests has CleanUp call a function once.
func AfterTests(call func(context.Context) error) {
	cleanups.mu.Lock()
	defer cleanups.mu.Unlock()
	cleanups.calls = append(cleanups.calls, call)
}

// CleanUp calls what AfterTests was given, the last first.
func CleanUp(ctx context.Context) error {
	cleanups.mu.Lock()
	defer cleanups.mu.Unlock()
	var errs []error
	for _, call := range slices.Backward(cleanups.calls) {
		errs = append(errs, call(ctx))
	}
	cleanups.calls = nil
	return errors.Join(errs...)
}
