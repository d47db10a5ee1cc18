package contender

import (
	"context"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Protected is a contender on a table that postgres.Protect protects in enforce mode. It is for keys
// that don't change, whose resources have no prefix.
func Protected(open load.Open) load.Open {
	return func(ctx context.Context, t *load.Target) (*load.Work, error) {
		pool, err := newPool(ctx, t)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		if _, err := postgres.Protect(ctx, pool, "", postgres.Protection{Table: "stock", ResourceExpr: "'sku/' || sku", Mode: postgres.ProtectEnforce}); err != nil {
			return nil, err
		}
		return open(ctx, t)
	}
}
