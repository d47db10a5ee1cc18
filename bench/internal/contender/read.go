package contender

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// BareRead reads in a READ ONLY transaction that nothing guards.
var BareRead = onPool(func(ctx context.Context, _ *load.Target, pool *pgxpool.Pool, item load.Item) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return look(ctx, tx, item.SKUs) })
})

// look reads each row.
func look(ctx context.Context, tx pgx.Tx, skus []string) error {
	for _, sku := range skus {
		var qty int64
		if err := tx.QueryRow(ctx, readQty, sku).Scan(&qty); err != nil {
			return err
		}
	}
	return nil
}

// DoRead is guard.Do with a function that only reads.
func DoRead(cfg guard.Config, opts ...guard.Option) load.Open {
	return onGuard(cfg, func(ctx context.Context, g *guarded, item load.Item) error {
		return guard.Do(ctx, g.guard, item.Resources, func(ctx context.Context, tx pgx.Tx) error { return look(ctx, tx, item.SKUs) }, opts...)
	})
}

// BatchRead is guard.Exec of a postgres.Batch that only reads.
func BatchRead(cfg guard.Config) load.Open {
	return onGuard(cfg, func(ctx context.Context, g *guarded, item load.Item) error {
		var b postgres.Batch
		for _, sku := range item.SKUs {
			b.Exec(readQty, sku).Returning()
		}
		return guard.Exec(ctx, g.guard, item.Resources, &b, guard.ReadOnly())
	})
}
