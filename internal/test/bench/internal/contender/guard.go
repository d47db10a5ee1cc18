package contender

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/storage/postgres"
)

func onGuard(locks lockService, cfg guard.Config, do func(context.Context, *guard.Guard[pgx.Tx], load.Item) error) load.Open {
	return func(ctx context.Context, t *load.Target) (load.Work, error) {
		pool, err := newPool(ctx, t)
		if err != nil {
			return load.Work{}, err
		}
		locker, err := newLocker(t, pool, locks)
		if err != nil {
			return load.Work{}, err
		}
		store, err := postgres.NewStore(pool, nil)
		if err != nil {
			return load.Work{}, err
		}
		g, err := guard.New(locker, store, &cfg)
		if err == nil {
			t.OnClose(g.Close)
		}
		return load.Work{Do: func(ctx context.Context, _ int, item load.Item) error { return do(ctx, g, item) }}, err
	}
}

func do(ctx context.Context, g *guard.Guard[pgx.Tx], item load.Item) error {
	fn := func(ctx context.Context, tx pgx.Tx) error { return sellReading(ctx, tx, item) }
	if len(item.Resources) == 1 {
		return guard.Do(ctx, g, item.Resources[0], fn)
	}
	return guard.Do(ctx, g, item.Resources, fn)
}

func read(ctx context.Context, g *guard.Guard[pgx.Tx], item load.Item) error {
	return guard.Do(ctx, g, item.Resources, func(ctx context.Context, tx pgx.Tx) error { return look(ctx, tx, item) }, guard.ReadOnly())
}

// execBatch is guard.Exec of a postgres.Batch with the one atomic UPDATE, which has to find what it takes.
func execBatch(ctx context.Context, g *guard.Guard[pgx.Tx], item load.Item) error {
	var b postgres.Batch
	b.Exec(takeOne, item.SKUs[0]).MustAffect(1)
	return guard.Exec(ctx, g, item.Resources[0], &b)
}
