package contender

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Pruning prunes what FillHistory has made.
func Pruning(ctx context.Context, dsn string) (end func() (map[result.Metric]float64, error), err error) {
	return beside(ctx, dsn, result.Pruned, prune)
}

// prune prunes once. A prune that was stopped may still be ending on the server, and leave nothing
// to this one: then it begins again.
func prune(ctx context.Context, pool *pgxpool.Pool) (entries int64, err error) {
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		return 0, err
	}
	if err := postgres.SetPolicy(ctx, pool, "", postgres.Policy{Keep: 90 * 24 * time.Hour, KeepEntries: 1, KeepOnce: time.Hour}); err != nil {
		return 0, err
	}
	for ctx.Err() == nil {
		pruned, err := store.Prune(ctx)
		if pruned.Entries > 0 || err != nil {
			return pruned.Entries, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, nil
}
