package process

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Shared returns a function that starts a server when it is first called. The tests of this binary use it together,
// and it is stopped after them. A failed start isn't tried again.
func Shared[S interface{ Stop(context.Context) error }](start func(context.Context) (S, error)) func() (S, error) {
	return sync.OnceValues(func() (S, error) {
		ctx, cancel := context.WithTimeout(context.Background(), StartBound)
		defer cancel()
		s, err := start(ctx)
		if err == nil {
			AfterTests(s.Stop)
		}
		return s, err
	})
}

type need struct {
	server string
	look   func(context.Context) error
}

var needs []need

// Needs has Missing look for a server in each binary that links the caller, which calls it in init.
func Needs(server string, look func(context.Context) error) {
	needs = append(needs, need{server, look})
}

// Missing names the servers that this binary may start and that aren't here.
func Missing(ctx context.Context) (servers []string) {
	for _, n := range needs {
		if n.look(ctx) != nil {
			servers = append(servers, n.server)
		}
	}
	return servers
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
