package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
)

// The answer to COMMIT is lost and the call made again, on this store, with a pool of
// two.
func TestRequireIdempotent_FindsFunctionsThatTakeEffectTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run     func(ctx context.Context, h guardtest.Process[pgx.Tx]) error
		failure string
		stock   int64
	}{
		"pays each time": {func(ctx context.Context, h guardtest.Process[pgx.Tx]) error {
			return guard.Do(ctx, h.Guard, resource, add("stock", -1), guard.Retryable())
		}, "so a second call after guard.ErrUnknownOutcome takes effect a second time", -5},
		"Once": {func(ctx context.Context, h guardtest.Process[pgx.Tx]) error {
			return doOnce(ctx, h.Guard, resource, add("stock", -1), guard.Once("order-7", nil))
		}, "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, migrated(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 2 })
			v := &verdict{TB: t}
			guardtest.RequireIdempotent(v, newStore(t, pool, nil), resource, func(ctx context.Context, h guardtest.Process[pgx.Tx]) (struct{}, error) {
				return struct{}{}, c.run(ctx, h)
			}, func(ctx context.Context) (items string, err error) {
				err = pool.QueryRow(ctx, "select coalesce(string_agg(key || ' ' || value, ', ' order by key), '') from item").Scan(&items)
				return items, err
			})
			if c.failure == "" {
				require.Empty(t, v.failure)
			} else {
				require.Contains(t, v.failure, c.failure)
			}
			holds(t, pool, "stock", c.stock)
			noneInUse(t, pool)
		})
	}
}
