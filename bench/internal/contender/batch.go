package contender

import (
	"context"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Batch is guard.Exec of a postgres.Batch, with the one atomic UPDATE for each row, which has
// to find what it takes.
func Batch(cfg guard.Config) load.Open {
	return onGuard(cfg, func(ctx context.Context, g *guarded, item load.Item) error {
		var b postgres.Batch
		for _, sku := range item.SKUs {
			b.Exec(takeOne, sku).MustAffect(1)
		}
		if len(item.Resources) == 1 {
			return guard.Exec(ctx, g.guard, item.Resources[0], &b)
		}
		return guard.Exec(ctx, g.guard, item.Resources, &b)
	})
}
