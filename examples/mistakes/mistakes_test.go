// Package mistakes has two ways to go wrong under a lock that package chaos alone finds. What goes around the fence is
// found by guardtest.RequireFenced.
package mistakes

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/guard"
)

func TestMain(m *testing.M) { chaos.Main(m, readsEarly, retriesByHand) }

// adding is a way to add to a counter, as package chaos runs it. examples/counter has the right one.
type adding struct {
	name string
	add  func(ctx context.Context, env *chaos.Env, n int) error
}

// readsEarly reads what it decides on before it has the lock.
var readsEarly = adding{"reads early", func(ctx context.Context, env *chaos.Env, n int) error {
	value, err := read(ctx, env.Pool)
	if err != nil {
		return err
	}
	return guard.Do(ctx, env.Guard, "counter", func(ctx context.Context, tx pgx.Tx) error { return write(ctx, tx, value, n) })
}}

// retriesByHand calls again when the outcome is unknown, without a key (guard.Once): that may take effect twice.
var retriesByHand = adding{"retries by hand", func(ctx context.Context, env *chaos.Env, n int) error {
	for {
		err := guard.Do(ctx, env.Guard, "counter", func(ctx context.Context, tx pgx.Tx) error {
			value, err := read(ctx, tx)
			if err != nil {
				return err
			}
			return write(ctx, tx, value, n)
		})
		if !errors.Is(err, guard.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func read(ctx context.Context, db querier) (value int, err error) {
	err = db.QueryRow(ctx, "select value from counter").Scan(&value)
	return value, err
}

func write(ctx context.Context, tx pgx.Tx, value, n int) error {
	_, err := tx.Exec(ctx, "with added as (insert into addition values ($2)) update counter set value = $1", value+n, n)
	return err
}

func TestMistakes_AreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mistake        adding
		scenario, says string
	}{
		{readsEarly, "expiry-at-every-await", "were added"},
		{retriesByHand, "lost-answer", "took effect twice"},
	} {
		t.Run(c.mistake.name, func(t *testing.T) {
			t.Parallel()
			suite, err := chaos.Run(t.Context(), chaos.Config{
				Workload: c.mistake, Scenarios: []string{c.scenario}, Groups: []string{chaos.Fenced}, Dir: t.TempDir(),
			})
			require.NoError(t, err)
			require.Equal(t, chaos.Violated, suite.Verdict, suite.Reason)
			require.Contains(t, suite.Runs[0].Failed+suite.Runs[0].Wrong, c.says)
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
	return a.add(ctx, env, 1+op.Rand().IntN(3))
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
