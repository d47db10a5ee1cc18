package goroutine

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardsql"
	"github.com/fencekit/fencekit/storage/memory"
)

func starts(ctx context.Context, g fencekit.Runner, mem *guard.Guard[*memory.Tx]) error {
	err := guard.Do(ctx, g, "a", func(ctx context.Context, tx pgx.Tx) error {
		go tx.Exec(ctx, "select 1") // want `a goroutine uses tx: a transaction does one call at a time, and none once its function has returned; call it from the function itself`
		go write(ctx, tx)           // want `a goroutine uses tx`
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return write(ctx, tx) }) // want `a goroutine uses tx`
		savepoint, err := tx.Begin(ctx)
		go func() {
			_ = write(ctx, savepoint) // want `a goroutine uses savepoint`
		}()
		return err
	})
	if err != nil {
		return err
	}
	err = guard.Do(ctx, g, "a", guardsql.With(func(ctx context.Context, db *sql.DB) error {
		go db.ExecContext(ctx, "select 1") // want `a goroutine uses db`
		return nil
	}))
	if err != nil {
		return err
	}
	return guard.Do(ctx, mem, "a", func(ctx context.Context, tx *memory.Tx) error {
		go tx.Set("a", "b") // want `a goroutine uses tx`
		return nil
	})
}

func write(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, "select 1").Scan() }

func right(ctx context.Context, g fencekit.Runner) error {
	err := guard.Do(ctx, g, "a", func(ctx context.Context, tx pgx.Tx) error {
		prices := make(chan int, 1)
		go func() { prices <- price(ctx) }()
		func() { _ = write(ctx, tx) }()
		go func() {
			conn, err := pgx.Connect(ctx, "") // its own
			if err == nil {
				err = conn.Ping(ctx)
			}
		}()
		_, err := tx.Exec(ctx, "update a set b = $1", <-prices)
		return err
	})
	if err != nil {
		return err
	}
	return guard.Hold(ctx, g, "a", func(ctx context.Context, h fencekit.Runner) error {
		done := make(chan error, 1)
		go func() { done <- guard.Do(ctx, h, "a", write) }()
		if err := <-done; err != nil {
			return err
		}
		var group errgroup.Group
		group.Go(func() error { return guard.Do(ctx, h, "a", write) })
		return group.Wait()
	})
}

func price(context.Context) int { return 1 }
