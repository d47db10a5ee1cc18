package control

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Lock excludes others from a resource. Its methods may be called
// concurrently.
type Lock interface {
	// Acquire waits for its turn and returns the lock. It fails when ctx ends
	// first, or a server can't be reached.
	Acquire(ctx context.Context, resource string) (Held, error)
	// Close closes the connections. It doesn't release locks that are still held.
	Close(ctx context.Context) error
}

// Held is a lock that is held, as far as its holder knows.
type Held interface {
	// Token is the lock's token; 0 if it has none.
	Token() int64
	// Check is what the recipe does in the transaction after the work, just before
	// COMMIT: most do nothing. It fails with ErrLockLost if it finds the lock lost.
	Check(ctx context.Context, tx pgx.Tx) error
	// Release releases the lock. It is called once.
	Release(ctx context.Context) error
}

// ErrLockLost: the recipe's own check found that the lock was lost. Nothing was
// committed.
var ErrLockLost = errors.New("control: the lock was lost")

// unchecked is a Held of a recipe without a token and without a check.
type unchecked struct{}

func (unchecked) Token() int64                        { return 0 }
func (unchecked) Check(context.Context, pgx.Tx) error { return nil }
