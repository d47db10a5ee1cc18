package worker

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// readAt is the time of the last SELECT.
type readAt struct{ time.Time }

func (*readAt) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (r *readAt) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.CommandTag.Select() {
		r.Time = time.Now()
	}
}

// A slow operation waits after it has read, and before it writes.
func TestStock_ThinksBetweenReadingAndWriting(t *testing.T) {
	t.Parallel()
	ctx := patient(t)
	server, err := pgserver.Start(ctx, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	dsn, err := server.CreateDatabase(ctx, "slow")
	require.NoError(t, err)
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	var read readAt
	cfg.ConnConfig.Tracer = &read
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, stock.Stock{}.Prepare(ctx, pool))
	none, err := control.ByName("no-lock")
	require.NoError(t, err)
	lock, err := none.Open(ctx, control.Servers{}, "")
	require.NoError(t, err)
	env := &workload.Env{At: func(string) {}, Pool: pool}
	env.Protection = &locked{lock: lock, pool: pool, env: env, record: func(history.Event) {}}

	for _, action := range []string{"do", "hold", "once"} {
		op := workload.Op{ID: action, Resource: stock.SlowResources[0], Action: action, Think: workload.Thinking{Lasts: 200 * time.Millisecond}}
		require.NoError(t, stock.Stock{}.Operate(ctx, env, op))
		require.GreaterOrEqual(t, time.Since(read.Time), op.Think.Lasts, action)
	}
}

// Under load each worker is slow on its own resource from the beginning, for longer than a
// lock's time to live, and quick on the quick resources.
func TestLoad_EachWorkerIsSlowOnItsOwnResource(t *testing.T) {
	over := make(chan struct{})
	for number := range 4 {
		w := &worker{workload: stock.Stock{}, spec: Spec{Number: number, Loops: 2}}
		loops := w.loops()
		require.Len(t, loops, 2+len(stock.SlowResources))
		for i, l := range loops[:2] {
			for n := range 200 {
				op := one(t, l, n, randomOf(i, n), over)
				require.Contains(t, stock.QuickResources, op.Resource)
				require.Zero(t, op.Think.Lasts)
			}
		}
		for i, l := range loops[2:] {
			own := i == number%len(stock.SlowResources)
			require.Equal(t, own, l.after == 0)
			thought, deaf := 0, 0
			for n := range 200 {
				op := one(t, l, n, randomOf(i, n), over)
				require.Equal(t, op, one(t, l, n, randomOf(i, n), over))
				require.Equal(t, stock.SlowResources[i], op.Resource)
				require.LessOrEqual(t, op.Think.Lasts, 2*workload.TTL)
				if op.Think.Lasts > 0 {
					thought++
				}
				if op.Think.Deaf {
					deaf++
				}
			}
			require.Equal(t, own, thought == 200)
			require.Greater(t, thought, 50)
			require.Greater(t, deaf, 50)
			require.Less(t, deaf, 150)
			if first := one(t, l, 0, randomOf(i, 0), over).Think; own {
				require.True(t, first.Deaf)
				require.Greater(t, first.Lasts, workload.TTL+workload.TTL/4)
			}
		}
	}
}

// one is the only operation of a round.
func one(t *testing.T, l loop, n int, random *rand.Rand, over <-chan struct{}) workload.Op {
	t.Helper()
	ops := l.next(n, random, over)
	require.Len(t, ops, 1)
	return ops[0]
}

// A worker with lots sells its own all at once in most rounds, and another's in some.
func TestLoad_SellsAllLotsAtOnce(t *testing.T) {
	w := &worker{workload: stock.Stock{}, spec: Spec{Number: 2, Lots: 4}}
	sell := w.loops()[0]
	for n := range lotVisits {
		owner := 2
		if n == lotVisits-1 {
			owner = 3
		}
		var lots []string
		for _, op := range sell.next(n, randomOf(0, n), nil) {
			require.Equal(t, stock.ActionBatch, op.Action)
			lots = append(lots, op.Resource)
		}
		require.Equal(t, stock.LotsOf(owner, 4), lots)
		require.Subset(t, stock.Stock{Lots: 4}.Resources(), lots)
	}
	require.NotEqual(t, stock.LotsOf(2, 4), stock.LotsOf(3, 4))
}

// randomOf is the source of a loop's n-th operation.
func randomOf(loop, n int) *rand.Rand { return rand.New(rand.NewPCG(uint64(loop), uint64(n))) }

// A workload without slow resources has loops over all its resources.
func TestLoad_IsOnAllResourcesOfAnyWorkload(t *testing.T) {
	w := &worker{workload: twoResources{}, spec: Spec{Loops: 2}}
	require.Len(t, w.loops(), 2)
	seen := map[string]bool{}
	for n := range 100 {
		seen[one(t, w.loops()[0], n, randomOf(0, n), nil).Resource] = true
	}
	require.Len(t, seen, 2)
}
