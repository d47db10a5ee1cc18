package contender

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Sharded is Do on the database that a resource belongs to, by guard.ShardOf. Each database has all
// rows, and uses its own; each has a pool of as many connections.
func Sharded(cfg guard.Config) load.Open {
	return func(ctx context.Context, t *load.Target) (_ *load.Work, err error) {
		client, err := newEtcd(t)
		if err != nil {
			return nil, err
		}
		locker, err := newLocker(t, client)
		if err != nil {
			return nil, err
		}
		var guards []*guard.Guard[pgx.Tx]
		var closePools []func()
		for _, dsn := range append([]string{t.Postgres}, t.Shards...) {
			pool, err := newPoolOn(ctx, t, dsn)
			if err != nil {
				return nil, err
			}
			store, err := postgres.NewStore(pool, nil)
			if err != nil {
				return nil, err
			}
			g, err := guard.New(locker, store, &cfg)
			if err != nil {
				return nil, err
			}
			guards, closePools = append(guards, g), append(closePools, pool.Close)
		}
		shards, err := guard.NewShards(guards...)
		if err != nil {
			return nil, err
		}
		return &load.Work{
			Do: func(ctx context.Context, goroutine int) error {
				item := t.Item(goroutine)
				return guard.Do(ctx, shards, item.Resources[0], func(ctx context.Context, tx pgx.Tx) error { return sell(ctx, tx, readQty, item.SKUs) })
			},
			Close: func(ctx context.Context) error {
				err := errors.Join(shards.Close(ctx), locker.Close(ctx))
				for _, closePool := range closePools {
					closePool()
				}
				return errors.Join(err, client.Close())
			},
		}, nil
	}
}
