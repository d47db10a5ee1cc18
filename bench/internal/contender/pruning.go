package contender

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage/postgres"
)

// Pruning is a prune of what FillHistory has made, beside a load.
type Pruning struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	began   time.Time
	entries int64
	err     error
}

// StartPruning begins to prune. It has to be stopped.
func StartPruning(ctx context.Context, dsn string) (*Pruning, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	store, err := postgres.NewStore(pool, nil)
	if err == nil {
		err = postgres.SetPolicy(ctx, pool, "", postgres.Policy{Keep: 90 * 24 * time.Hour, KeepEntries: 1, KeepOnce: time.Hour})
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	p := &Pruning{began: time.Now()}
	ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(func() {
		defer pool.Close()
		p.run(ctx, store)
	})
	return p, nil
}

// run prunes. A prune that was stopped may still be ending on the server, and leave nothing to this
// one: then it begins again.
func (p *Pruning) run(ctx context.Context, store *postgres.Store) {
	for p.entries == 0 && p.err == nil && ctx.Err() == nil {
		pruned, err := store.Prune(ctx)
		p.entries = pruned.Entries
		if ctx.Err() == nil {
			p.err = err
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// Stop ends it, and returns how many entries a second it has deleted.
func (p *Pruning) Stop() (rate float64, err error) {
	p.cancel()
	p.running.Wait()
	return float64(p.entries) / time.Since(p.began).Seconds(), p.err
}
