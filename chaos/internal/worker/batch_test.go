package worker

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A batch sells, and its orders say what the stock was before each, under Fencekit with the
// token of the grant, and under a control with that of its lock.
func TestStock_BatchesRecordWhatTheySawAndTheirToken(t *testing.T) {
	t.Parallel()
	for name, protect := range map[string]func(t *testing.T, env *workload.Env) (token func() int64){"fenced": protectByFence, "a control": protectByNothing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := patient(t)
			pool, err := pgxpool.New(ctx, pgserver.Database(t))
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			require.NoError(t, stock.Stock{Initial: 100}.Prepare(ctx, pool))
			env := &workload.Env{Process: "w0", At: func(string) {}, Pool: pool}
			token := protect(t, env)
			for _, id := range []string{"first", "second"} {
				op := workload.Op{ID: id, Resource: stock.QuickResources[0], Action: stock.ActionBatch}
				require.NoError(t, stock.Stock{}.Operate(ctx, env, op))
			}
			require.NoError(t, stock.Stock{}.Check(ctx, pool))
			var right int
			require.NoError(t, pool.QueryRow(ctx, `
				select count(*) from orders o left join orders p on p.id = o.id - 1
				where o.seen = coalesce(p.seen - p.quantity, 100) and o.token = $1`, token()).Scan(&right))
			require.Equal(t, 2, right)
		})
	}
}

// protectByFence protects env by Fencekit, and returns the token that its operations have.
func protectByFence(t *testing.T, env *workload.Env) (token func() int64) {
	t.Helper()
	_, err := postgres.Migrate(t.Context(), env.Pool, "")
	require.NoError(t, err)
	store, err := postgres.NewStore(env.Pool, nil)
	require.NoError(t, err)
	locks := guardtest.NewLockService()
	env.Guard, err = guard.New(locks.NewLocker("w0"), store, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, env.Guard.Close(context.Background())) })
	env.Protection = &fenced{guard: env.Guard, env: env}
	return func() int64 { return int64(locks.Holder(stock.QuickResources[0]).Token) }
}

// protectByNothing protects env by a lock without a token.
func protectByNothing(t *testing.T, env *workload.Env) (token func() int64) {
	t.Helper()
	none, err := control.ByName("no-lock")
	require.NoError(t, err)
	lock, err := none.Open(t.Context(), control.Servers{}, "")
	require.NoError(t, err)
	env.Protection = &locked{lock: lock, pool: env.Pool, env: env, record: func(history.Event) {}}
	return func() int64 { return 0 }
}
