package contender

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/storage/postgres"
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

// Anchoring records the heads of all resources in a log, once a second. The first run records all
// that FillHistory has made.
var Anchoring = rate(result.Anchored, anchorEachSecond)

// Pruning prunes what FillHistory has made.
var Pruning = rate(result.Pruned, prune)

// rate runs do until the end, and returns what it has counted as a rate of a metric. An error that
// comes of the end is none.
func rate(metric result.Metric, do func(context.Context, *pgxpool.Pool) (count int64, err error)) Beside {
	return func(ctx context.Context, dsn string) (end func() (map[result.Metric]float64, error), err error) {
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
}

func anchorEachSecond(ctx context.Context, pool *pgxpool.Pool) (runs int64, err error) {
	source, err := audit.Open(pool, "")
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "anchors-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	log, err := newAnchorLog(filepath.Join(dir, "heads.jsonl"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for ctx.Err() == nil {
		run, err := log.Anchor(ctx, source)
		if err != nil {
			return runs, err
		}
		if len(run.Violations)+len(run.Unproven) > 0 {
			return runs, errors.New("contender: an honest history is reported")
		}
		runs++
		select {
		case <-each.C:
		case <-ctx.Done():
		}
	}
	return runs, nil
}

func newAnchorLog(path string) (*anchor.Log, error) {
	private, _, err := anchor.NewKey("bench")
	if err != nil {
		return nil, err
	}
	signer, err := anchor.ParseSigner(private)
	if err != nil {
		return nil, err
	}
	return anchor.Create(path, signer)
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
