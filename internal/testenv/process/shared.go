package process

import (
	"context"
	"errors"
	"slices"
	"sync"
)

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

// cleanups is what is to be done after the tests.
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
