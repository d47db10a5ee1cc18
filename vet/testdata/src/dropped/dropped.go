package dropped

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

func nothing(context.Context, pgx.Tx) error { return nil }

func one(context.Context, pgx.Tx) (int, error) { return 1, nil }

func wrong(ctx context.Context, g fencekit.Runner) int {
	guard.Do(ctx, g, "a", nothing)                                                           // want `the error of guard.Do is dropped: it alone tells whether the call took effect; return it or handle it`
	_ = guard.Do(ctx, g, "a", nothing)                                                       // want `the error of guard.Do is dropped`
	go guard.Do(ctx, g, "a", nothing)                                                        // want `the error of guard.Do is dropped`
	defer guard.Do(ctx, g, "a", nothing)                                                     // want `the error of guard.Do is dropped`
	guard.Exec(ctx, g, "a", &postgres.Batch{})                                               // want `the error of guard.Exec is dropped`
	_ = guard.Hold(ctx, g, "a", func(context.Context, fencekit.Runner) error { return nil }) // want `the error of guard.Hold is dropped`
	n, _ := guard.Value(ctx, g, "a", one)                                                    // want `the error of guard.Value is dropped`
	return n
}

func right(ctx context.Context, g fencekit.Runner) error {
	if err := guard.Do(ctx, g, "a", nothing); err != nil {
		return err
	}
	_, err := guard.Value(ctx, g, "a", one)
	failed := make(chan error, 1)
	go func() { failed <- guard.Do(ctx, g, "a", nothing) }()
	_ = guard.Grants(ctx)
	return errors.Join(err, <-failed, guard.Exec(ctx, g, "a", &postgres.Batch{}))
}
