package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// Acquire takes a connection from the pool.
func Acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, &noConnectionError{err: err}
	}
	conn, err := pool.Acquire(ctx)
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, new(*pgconn.ConnectError)):
		return nil, unavailable(err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &noConnectionError{why: awaited(pool.Stat()), err: err}
	case isNetwork(err), sqlstate.Of(err) != "": // in a hook of the pool's, such as AfterConnect
		return nil, unavailable(err)
	}
	return nil, &noConnectionError{err: NameClosed(err)}
}

// NameClosed adds the remedy to the error of a pool that was closed, which the pool says by
// its text alone.
func NameClosed(err error) error {
	if err == nil || err.Error() != "closed pool" {
		return err
	}
	return fmt.Errorf("%w: close it after the last use of the Guard and the Store on it", err)
}

// awaited says what a call that got no connection in time has waited for.
func awaited(stat *pgxpool.Stat) string {
	if stat.AcquiredConns() >= stat.MaxConns() {
		return fmt.Sprintf("all of its connections (MaxConns is %d) are in use: ", stat.MaxConns())
	}
	return fmt.Sprintf("the server did not answer (%d of at most %d connections are in use): ", stat.AcquiredConns(), stat.MaxConns())
}

// noConnectionError is the error when the pool has no connection.
type noConnectionError struct {
	why string
	err error
}

func (e *noConnectionError) Error() string {
	return "postgres: no connection from the pool: " + e.why + e.err.Error()
}

func (e *noConnectionError) Unwrap() error { return e.err }

// FailedAt adds the failed step to err, unless err says that there was no connection: guard
// names the step too.
func FailedAt(step string, err error) error {
	if errors.Is(err, storage.ErrStoreUnavailable) || errors.As(err, new(*noConnectionError)) {
		return err
	}
	return fmt.Errorf("postgres: %s: %w", step, err)
}
