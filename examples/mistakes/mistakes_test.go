// Package mistakes has ways to go wrong under a lock, and shows which tool finds which.
package mistakes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { chaos.Main(m, readsEarly, retriesByHand) }

// adding is a way to add to a counter. finds says which tools find what is wrong with it, and by what.
type adding struct {
	name  string
	add   func(ctx context.Context, on fencekit.Runner, pool *pgxpool.Pool, n int) error
	finds findings
}

type findings struct{ fenced, idempotent, simulated, scenario, chaos string }

var right = adding{name: "right", add: func(ctx context.Context, on fencekit.Runner, _ *pgxpool.Pool, n int) error {
	return guard.Do(ctx, on, "counter", readAndWrite(n))
}, finds: findings{idempotent: "takes effect a second time"}}

// readsEarly reads what it decides on before it has the lock.
var readsEarly = adding{name: "reads early", add: func(ctx context.Context, on fencekit.Runner, pool *pgxpool.Pool, n int) error {
	value, err := read(ctx, pool)
	if err != nil {
		return err
	}
	return guard.Do(ctx, on, "counter", func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, value, n) })
}, finds: findings{
	idempotent: "takes effect a second time", simulated: "were added", scenario: "expiry-at-every-await", chaos: "were added",
}}

// retriesByHand calls again when the outcome is unknown, without a key (guard.Once): that may take effect twice.
var retriesByHand = adding{name: "retries by hand", add: func(ctx context.Context, on fencekit.Runner, _ *pgxpool.Pool, n int) error {
	for {
		err := guard.Do(ctx, on, "counter", readAndWrite(n))
		if !errors.Is(err, guard.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}, finds: findings{
	idempotent: "takes effect a second time", simulated: "calls took effect", scenario: "lost-answer", chaos: "took effect twice",
}}

// writesThroughThePool writes on a connection that no fence guards.
var writesThroughThePool = adding{name: "writes through the pool", add: func(ctx context.Context, on fencekit.Runner, pool *pgxpool.Pool, n int) error {
	return guard.Do(ctx, on, "counter", func(ctx context.Context, tx pgx.Tx) error {
		value, err := read(ctx, tx)
		if err != nil {
			return err
		}
		return write(ctx, pool, value, n)
	})
}, finds: findings{fenced: "goes around the fence", idempotent: "isn't part of its transaction", simulated: "calls took effect"}}

// namesAnother names another resource than others do, which shows only beside those.
var namesAnother = adding{name: "names another resource", add: func(ctx context.Context, on fencekit.Runner, _ *pgxpool.Pool, n int) error {
	return guard.Do(ctx, on, []string{"counter", "total"}[n%2], readAndWrite(n))
}, finds: findings{fenced: "it writes around the fence", idempotent: "takes effect a second time", simulated: "were added"}}

// hasNoFence has a transaction, and nothing else.
var hasNoFence = adding{name: "has no fence", add: func(ctx context.Context, _ fencekit.Runner, pool *pgxpool.Pool, n int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return readAndWrite(n)(ctx, tx) })
}, finds: findings{fenced: "run claimed nothing", idempotent: "sent no COMMIT", simulated: "were added"}}

func readAndWrite(n int) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		value, err := read(ctx, tx)
		if err != nil {
			return err
		}
		return write(ctx, tx, value, n)
	}
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func read(ctx context.Context, db querier) (value int, err error) {
	err = db.QueryRow(ctx, "select value from counter").Scan(&value)
	return value, err
}

func write(ctx context.Context, db querier, value, n int) error {
	return db.QueryRow(ctx, "with added as (insert into addition values ($2)) update counter set value = $1 returning value", value+n, n).Scan(&value)
}

func TestMistakes_AreFoundInSeconds(t *testing.T) {
	t.Parallel()
	for _, a := range []adding{right, readsEarly, retriesByHand, writesThroughThePool, namesAnother, hasNoFence} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			pool, store := newStore(t)
			state := func(ctx context.Context) (n int, err error) {
				err = pool.QueryRow(ctx, "select count(*) from addition").Scan(&n)
				return n, err
			}
			run := func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
				return a.add(ctx, p.Guard, p.Store.(*postgres.Store).Pool(), 1+p.Number)
			}
			r := &reporter{TB: t}
			t.Run("RequireFenced", func(*testing.T) { guardtest.RequireFenced(r, store, "counter", run, state) })
			r.requires(t, a.finds.fenced)
			t.Run("RequireIdempotent", func(*testing.T) {
				guardtest.RequireIdempotent(r, store, "counter", func(ctx context.Context, p guardtest.Process[pgx.Tx]) (struct{}, error) {
					return struct{}{}, run(ctx, p)
				}, state)
			})
			r.requires(t, a.finds.idempotent)
			seed := 0
			simulate := func(*testing.T) {
				guardtest.Simulate(r, store, []string{"counter", "total"}, guardtest.Simulation[pgx.Tx]{
					Prepare: func(ctx context.Context) error {
						_, err := pool.Exec(ctx, "update counter set value = 0; delete from addition")
						return err
					},
					Run: run,
					Check: func(ctx context.Context, least, most int) error {
						n, err := state(ctx)
						if n < least || n > most {
							return fmt.Errorf("%d calls took effect, and %d to %d say so", n, least, most)
						}
						return cmp.Or(err, a.Check(ctx, pool))
					},
					Seed: seed,
				})
			}
			t.Run("Simulate", simulate)
			first := r.failure
			r.requires(t, a.finds.simulated)
			if first != "" {
				_, err := fmt.Sscanf(first, "guardtest: seed %d", &seed)
				require.NoError(t, err)
				simulate(t)
				require.Equal(t, first, r.failure, "the same steps again")
			}
		})
	}
}

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := postgres.Migrate(ctx, pool, "")
	return cmp.Or(err, right.Prepare(ctx, pool))
}}

func newStore(t *testing.T) (*pgxpool.Pool, *postgres.Store) {
	pool, err := pgxpool.New(t.Context(), template.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	return pool, store
}

type reporter struct {
	testing.TB
	failure string
}

func (*reporter) Helper() {}

func (r *reporter) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

// requires shows what the last tool found.
func (r *reporter) requires(t *testing.T, finding string) {
	t.Log(strings.TrimSpace(r.failure))
	require.Equal(t, finding != "", r.failure != "", r.failure)
	require.Contains(t, r.failure, finding)
	r.failure = ""
}

func TestMistakes_AreFoundByChaos(t *testing.T) {
	t.Parallel()
	for _, a := range []adding{readsEarly, retriesByHand} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			suite, err := chaos.Run(t.Context(), chaos.Config{
				Workload: a, Scenarios: []string{a.finds.scenario}, Groups: []string{chaos.Fenced}, Dir: t.TempDir(),
			})
			require.NoError(t, err)
			require.Equal(t, chaos.Violated, suite.Verdict, suite.Reason)
			require.Contains(t, suite.Runs[0].Failed+suite.Runs[0].Wrong, a.finds.chaos)
		})
	}
}

// Name implements chaos.Workload.
func (a adding) Name() string { return a.name }

// Resources implements chaos.Workload.
func (adding) Resources() []string { return []string{"counter"} }

// Prepare implements chaos.Workload.
func (adding) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, "create table counter (value int not null); create table addition (n int not null); insert into counter values (0)")
	return err
}

// Operate implements chaos.Workload.
func (a adding) Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error {
	return a.add(ctx, env.Guard, env.Pool, 1+op.Rand().IntN(3))
}

// Check implements chaos.Workload.
func (adding) Check(ctx context.Context, db *pgxpool.Pool) error {
	var value, added int
	err := db.QueryRow(ctx, "select value, (select coalesce(sum(n), 0) from addition) from counter").Scan(&value, &added)
	if err == nil && value != added {
		err = fmt.Errorf("the counter is %d, and %d were added", value, added)
	}
	return err
}
