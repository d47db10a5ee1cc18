package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestThinking_LastsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, end := thinking{lasts: time.Hour}.pass(t.Context())
		defer end()
		require.Equal(t, time.Hour, time.Since(began))
		require.NoError(t, ctx.Err())

		over := make(chan struct{})
		close(over)
		_, endOver := thinking{lasts: time.Hour, deaf: true, over: over}.pass(t.Context())
		defer endOver()
		require.Equal(t, time.Hour, time.Since(began), "nobody waits for it when the load is over")
	})
}

// One that is deaf goes on as if nothing had happened, but not for ever.
func TestThinking_DoesOrDoesNotNoticeThatItsContextEnds(t *testing.T) {
	for deaf, lasts := range map[bool]time.Duration{false: 0, true: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			cancel()
			began := time.Now()
			after, end := thinking{lasts: time.Minute, deaf: deaf}.pass(ctx)
			defer end()
			require.Equal(t, lasts, time.Since(began))
			require.Equal(t, deaf, after.Err() == nil)
			deadline, _ := after.Deadline()
			require.Equal(t, began.Add(time.Hour), deadline)
		})
	}
}

// readAt is when what there is was read last.
type readAt struct{ time.Time }

func (*readAt) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (r *readAt) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.CommandTag.Select() {
		r.Time = time.Now()
	}
}

// A slow operation takes its time when it has read, and before it writes.
func TestStock_ThinksBetweenReadingAndWriting(t *testing.T) {
	t.Parallel()
	ctx := patient(t)
	server, err := testenv.StartPostgres(ctx, nil)
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
	require.NoError(t, Stock{}.Prepare(ctx, pool))
	none, err := control.ByName("no-lock")
	require.NoError(t, err)
	lock, err := none.Open(ctx, control.Servers{}, "")
	require.NoError(t, err)
	env := &Env{points: &points{}, Pool: pool}
	env.protection = &locked{lock: lock, pool: pool, env: env, tell: func(history.Event) {}}

	for _, action := range []string{"do", "hold", "once"} {
		op := Op{ID: action, Resource: bulkResources[0], Action: action, think: thinking{lasts: 200 * time.Millisecond}}
		require.NoError(t, Stock{}.Operate(ctx, env, op))
		require.GreaterOrEqual(t, time.Since(read.Time), op.think.lasts, action)
	}
}

// In the midst of a transaction nobody thinks for longer than that may be idle, and who
// thinks keeps no resource that quick operations are about.
func TestStock_ThinksLongWithoutATransaction(t *testing.T) {
	require.Less(t, longestInTx, storeBounds.IdleTimeout)
	for seed := range uint64(200) {
		op := Op{ID: "w0.1", Resource: bulkResources[0], Seed: seed, think: thinking{lasts: longestInTx}}
		require.NotEqual(t, "all", Stock{}.order(op).action)
		op.think.lasts++
		require.Equal(t, "hold", Stock{}.order(op).action)
		op.Action = "do"
		require.Equal(t, "do", Stock{}.order(op).action)
	}
}

// Under load each worker is slow on a resource of its own from the beginning, for
// longer than a lock lives without renewal, and quick on those that are for that.
func TestLoad_OfEachWorkerIsSlowSomewhereElse(t *testing.T) {
	over := make(chan struct{})
	for number := range 4 {
		w := &worker{workload: Stock{}, spec: spec{Number: number, Loops: 2}}
		loops := w.loops()
		require.Len(t, loops, 2+len(bulkResources))
		for i, l := range loops[:2] {
			for n := range 200 {
				op := l.next(n, randomOf(i, n), over)
				require.Contains(t, stockResources, op.Resource)
				require.Zero(t, op.think.lasts)
			}
		}
		for i, l := range loops[2:] {
			own := i == number%len(bulkResources)
			require.Equal(t, own, l.after == 0)
			thought, deaf := 0, 0
			for n := range 200 {
				op := l.next(n, randomOf(i, n), over)
				require.Equal(t, op, l.next(n, randomOf(i, n), over))
				require.Equal(t, bulkResources[i], op.Resource)
				require.LessOrEqual(t, op.think.lasts, 2*TTL)
				if op.think.lasts > 0 {
					thought++
				}
				if op.think.deaf {
					deaf++
				}
			}
			require.Equal(t, own, thought == 200)
			require.Greater(t, thought, 50)
			require.Greater(t, deaf, 50)
			require.Less(t, deaf, 150)
			if first := l.next(0, randomOf(i, 0), over).think; own {
				require.True(t, first.deaf)
				require.Greater(t, first.lasts, TTL+TTL/4)
			}
		}
	}
}

// randomOf is the source of a loop's n-th operation.
func randomOf(loop, n int) *rand.Rand { return rand.New(rand.NewPCG(uint64(loop), uint64(n))) }

// A workload that knows nothing of this has the loops that it always had.
func TestLoad_IsOnAllResourcesOfAnyWorkload(t *testing.T) {
	w := &worker{workload: named{resources: []string{"a", "b"}}, spec: spec{Loops: 2}}
	require.Len(t, w.loops(), 2)
	seen := map[string]bool{}
	for n := range 100 {
		seen[w.loops()[0].next(n, randomOf(0, n), nil).Resource] = true
	}
	require.Len(t, seen, 2)
}
