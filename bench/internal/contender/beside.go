package contender

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/result"
)

// Beside begins what goes on in the database of a contender while that runs. end ends it, and
// returns what it has done.
type Beside func(ctx context.Context, dsn string) (end func() (map[result.Metric]float64, error), err error)

// Snapshot has a snapshot, as a long report has.
func Snapshot(ctx context.Context, dsn string) (end func() (map[result.Metric]float64, error), err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "begin isolation level repeatable read; select count(*) from stock"); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return func() (map[result.Metric]float64, error) { return nil, conn.Close(context.WithoutCancel(ctx)) }, nil
}

// beside runs do until the end, and returns what it has counted as a rate of a metric. An error that
// comes of the end is none.
func beside(ctx context.Context, dsn string, metric result.Metric, do func(context.Context, *pgxpool.Pool) (count int64, err error)) (end func() (map[result.Metric]float64, error), err error) {
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
		if count, failed = do(ctx, pool); ctx.Err() != nil {
			failed = nil
		}
	})
	return func() (map[result.Metric]float64, error) {
		cancel()
		running.Wait()
		return map[result.Metric]float64{metric: float64(count) / time.Since(began).Seconds()}, failed
	}, nil
}
