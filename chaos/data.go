package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// onData calls Prepare or Check of the workload. One that doesn't return when its
// context has ended is left behind.
func (s *Stage) onData(ctx context.Context, method string, do func(context.Context, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.bounds.data)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := fmt.Errorf("chaos: %s ended its goroutine (runtime.Goexit)", method)
		defer func() { ended <- err }()
		err = do(ctx, s.pool)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(s.bounds.grace):
		return fmt.Errorf("%w: %s has not returned %v after the end of its context", errStuck, method, s.bounds.grace)
	}
}

// closePool closes the run's pool. It doesn't wait for ever for a connection that the
// workload has kept: that ends with its database.
func (s *Stage) closePool(context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(s.bounds.grace):
	}
	return nil
}
