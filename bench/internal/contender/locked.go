package contender

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/bench/internal/load"
)

// Locked is what articles show: acquire a lock, run the operation in a transaction that
// nothing guards, release the lock. A holder that is paused for longer than the lock lasts
// overwrites what its successor has written.
func Locked(lock load.Open) load.Open {
	return func(ctx context.Context, t *load.Target) (*load.Work, error) {
		pool, err := newPool(ctx, t)
		if err != nil {
			return nil, err
		}
		locks, err := lock(ctx, t)
		if err != nil {
			pool.Close()
			return nil, err
		}
		return &load.Work{
			Do: func(ctx context.Context, g int) error {
				release, err := locks.Acquire(ctx, g)
				if err != nil {
					return err
				}
				sold := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return sell(ctx, tx, readQty, t.Item(g).SKUs) })
				return errors.Join(sold, release(context.WithoutCancel(ctx)))
			},
			Close: func(ctx context.Context) error { pool.Close(); return locks.Close(ctx) },
		}, nil
	}
}
