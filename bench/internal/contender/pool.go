package contender

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/load"
)

// newPool returns a pool with all of its connections open.
func newPool(ctx context.Context, t *load.Target) (*pgxpool.Pool, error) {
	return newPoolOn(ctx, t, t.Postgres)
}

func newPoolOn(ctx context.Context, t *load.Target, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(t.Connections)
	cfg.ConnConfig.DialFunc = t.Wire.Dial
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	conns, errs := make([]*pgxpool.Conn, t.Connections), make([]error, t.Connections)
	var opening sync.WaitGroup
	for i := range conns {
		opening.Go(func() { conns[i], errs[i] = pool.Acquire(ctx) })
	}
	opening.Wait()
	for _, c := range conns {
		if c != nil {
			c.Release()
		}
	}
	if err := errors.Join(errs...); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// onPool returns work that uses a pool and nothing else.
func onPool(do func(ctx context.Context, t *load.Target, pool *pgxpool.Pool, item load.Item) error) load.Open {
	return func(ctx context.Context, t *load.Target) (*load.Work, error) {
		pool, err := newPool(ctx, t)
		if err != nil {
			return nil, err
		}
		return &load.Work{
			Do:    func(ctx context.Context, g int) error { return do(ctx, t, pool, t.Item(g)) },
			Close: func(context.Context) error { pool.Close(); return nil },
		}, nil
	}
}
