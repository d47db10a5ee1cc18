package environment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// OnData calls Prepare or Check of the workload. A call that doesn't return when its
// context has ended is abandoned.
func (s *Environment) OnData(ctx context.Context, method string, do func(context.Context, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Bounds.Data)
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
	case <-time.After(s.cfg.Bounds.Grace):
		return fmt.Errorf("%w: %s has not returned %v after the end of its context", ErrHangs, method, s.cfg.Bounds.Grace)
	}
}

// closePool closes the run's pool. It gives up waiting for a connection that the workload
// has kept: that connection ends with its database.
func (s *Environment) closePool(context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(s.cfg.Bounds.Grace):
	}
	return nil
}
