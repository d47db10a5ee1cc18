package contender

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Beside begins what goes on in the database of a contender while that runs. end ends it, and
// returns what it has done.
type Beside func(ctx context.Context, dsn string) (end func() (map[result.Metric]float64, error), err error)

// Pruning prunes what FillHistory has made, until the end, and returns how fast. An error that comes of the end is none.
func Pruning(ctx context.Context, dsn string) (end func() (map[result.Metric]float64, error), err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var count int64
	var failed error
	began := time.Now()
	running.Go(func() {
		defer pool.Close()
		if count, failed = prune(ctx, pool); ctx.Err() != nil {
			failed = nil
		}
	})
	return func() (map[result.Metric]float64, error) {
		cancel()
		running.Wait()
		return map[result.Metric]float64{result.Pruned: float64(count) / time.Since(began).Seconds()}, failed
	}, nil
}

// A prune that was stopped may still be ending on the server, and leave nothing
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
