package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrUnknown: the COMMIT was not answered. The work may have taken effect.
	ErrUnknown = errors.New("control: the COMMIT was not answered")
	// ErrNotReleased: the work was committed, but the lock couldn't be released.
	ErrNotReleased = errors.New("control: the work was committed, but the lock was not released")
)

// Work is done in one transaction under a lock with a token. An error rolls it back. It must
// not commit.
type Work func(ctx context.Context, tx pgx.Tx, token int64) error

// Do acquires a resource, runs work in a transaction of the pool, and releases the
// resource. The work took effect if the error is nil or ErrNotReleased, perhaps if
// it is ErrUnknown, and not otherwise.
func Do(ctx context.Context, lock Lock, pool *pgxpool.Pool, resource string, work Work) error {
	if g, ok := lock.(Grouper); ok {
		return g.Group(ctx, pool, resource, work)
	}
	return Hold(ctx, lock, pool, resource, func(ctx context.Context, do func(context.Context, Work) error) error {
		return do(ctx, work)
	})
}

// Hold acquires a resource, calls fn and releases the resource. Within fn, do runs
// work in one transaction each, whose errors are those of Do. Hold returns fn's
// error, and ErrNotReleased only if that is nil.
func Hold(ctx context.Context, lock Lock, pool *pgxpool.Pool, resource string, fn func(ctx context.Context, do func(context.Context, Work) error) error) (err error) {
	held, err := lock.Acquire(ctx, resource)
	if err != nil {
		return fmt.Errorf("control: acquire %s: %w", resource, err)
	}
	defer func() {
		if released := held.Release(ctx); err == nil && released != nil {
			err = fmt.Errorf("%w: %w", ErrNotReleased, released)
		}
	}()
	return fn(ctx, func(ctx context.Context, work Work) error { return transact(ctx, pool, held, work) })
}

// transact runs work and the recipe's check in a transaction.
func transact(ctx context.Context, pool *pgxpool.Pool, held Held, work Work) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) // a no-op after COMMIT
	if err := work(ctx, tx, held.Token()); err != nil {
		return err
	}
	if err := held.Check(ctx, tx); err != nil {
		return err
	}
	return Commit(ctx, tx)
}

// Commit commits, and returns ErrUnknown if the server did not answer. A FATAL error is no
// answer to the COMMIT: the backend was terminated, perhaps after it.
func Commit(ctx context.Context, tx pgx.Tx) error {
	err := tx.Commit(ctx)
	var answer *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback):
		return err
	case errors.As(err, &answer) && answer.Severity == "ERROR":
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
