package contender

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Batch is guard.Exec of a postgres.Batch, with the one atomic UPDATE for each row, which has
// to find what it takes.
func Batch(cfg guard.Config) load.Open {
	return onGuard(cfg, func(ctx context.Context, g *guarded, item load.Item) error { return execBatch(ctx, g.guard, item) })
}

func execBatch(ctx context.Context, g *guard.Guard[pgx.Tx], item load.Item) error {
	var b postgres.Batch
	for _, sku := range item.SKUs {
		b.Exec(takeOne, sku).MustAffect(1)
	}
	if len(item.Resources) == 1 {
		return guard.Exec(ctx, g, item.Resources[0], &b)
	}
	return guard.Exec(ctx, g, item.Resources, &b)
}

// BatchAlone is Batch with a Guard for each goroutine, on one Locker, one store and one pool:
// calls share transactions within a Guard only.
func BatchAlone(cfg guard.Config) load.Open {
	return func(ctx context.Context, t *load.Target) (*load.Work, error) {
		client, err := newEtcd(t)
		if err != nil {
			return nil, err
		}
		shared, err := newGuarded(ctx, t, client, &cfg)
		if err != nil {
			return nil, err
		}
		guards := make([]*guard.Guard[pgx.Tx], t.Goroutines)
		for i := range guards {
			if guards[i], err = guard.New(shared.locker, shared.store, &cfg); err != nil {
				return nil, err
			}
		}
		return &load.Work{
			Do: func(ctx context.Context, goroutine int) error {
				return execBatch(ctx, guards[goroutine], t.Item(goroutine))
			},
			Close: func(ctx context.Context) error {
				var errs []error
				for _, g := range guards {
					errs = append(errs, g.Close(ctx))
				}
				return errors.Join(append(errs, shared.close(ctx))...)
			},
		}, nil
	}
}
