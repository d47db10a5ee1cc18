package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// steadyFor records that prunes have seen the clock go steadily for so long.
func steadyFor(t testing.TB, pool *pgxpool.Pool, interval string) {
	t.Helper()
	mustExec(t, pool, "update fence.forget_clock set seen = clock_timestamp(), steady = clock_timestamp() - $1::text::interval", interval)
}

// setForward has the effect of setting the clock forward: everything that was written
// before is older by that much.
func setForward(t testing.TB, pool *pgxpool.Pool, interval string) {
	t.Helper()
	mustExec(t, pool, "update fence.operation set at = at - $1::text::interval", interval)
	mustExec(t, pool, "update fence.forget_clock set seen = seen - $1::text::interval, steady = steady - $1::text::interval", interval)
}

// The clock is set forward by 10 days: what was kept a moment ago is not forgotten, and
// doesn't run again, however often Prune is called.
func TestPrune_IsNotMisledByAClockThatJumped(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	g, err := guard.New(guardtest.NewLocker(), store, nil)
	require.NoError(t, err)
	defer g.Close(context.Background())
	_, err = store.Prune(t.Context())
	require.NoError(t, err)
	steadyFor(t, pool, "30 days")
	order := func() {
		require.NoError(t, doOnce(t.Context(), g, resource, add("x", 1), guard.Once("order 7", nil)))
	}
	order()
	setForward(t, pool, "10 days")
	pruned, err := store.Prune(t.Context())
	requireNotReady(t, err, postgres.ClockJumped)
	require.ErrorContains(t, err, "prune at least once a day")
	require.Zero(t, pruned)
	for range 3 {
		pruned, err = store.Prune(t.Context())
		require.NoError(t, err)
		require.Zero(t, pruned)
	}
	order()
	holds(t, pool, "x", 1)

	// Only after calls have seen the clock go steadily for the retention.
	steadyFor(t, pool, "6 days 23 hours")
	pruned, err = store.Prune(t.Context())
	require.NoError(t, err)
	require.Zero(t, pruned)
	steadyFor(t, pool, "7 days 1 hour")
	pruned, err = store.Prune(t.Context())
	require.NoError(t, err)
	require.Equal(t, postgres.Pruned{OnceKeys: 1}, pruned)
}

// A clock that is set back between two calls, and forward again, doesn't make young
// operations old; if a call finds the clock set back, the retention begins anew.
func TestPrune_IsNotMisledByAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	_, err := store.Prune(t.Context())
	require.NoError(t, err)
	mustExec(t, pool, "update fence.forget_clock set seen = seen + interval '10 days'")
	c := claim(t, store, grant(5, "a"))
	txn := begin(t, store, c)
	_, err = txn.Commit(t.Context(), keeping(storage.OnceKey{Key: "k"}, nil))
	require.NoError(t, err)
	require.True(t, query[bool](t, pool, "select o.at >= c.seen from fence.operation o, fence.forget_clock c"), "as old as the clock was known to be")
	_, err = store.Prune(t.Context())
	requireNotReady(t, err, postgres.ClockJumped)
	require.True(t, query[bool](t, pool, "select seen = steady and seen <= clock_timestamp() from fence.forget_clock"))
}

// Removing Once keys waits for no lock: not for an operation that is in use, nor for another call.
func TestPrune_NeverWaitsForALock(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	steadyFor(t, pool, "8 days")
	mustExec(t, pool, `insert into fence.operation (resource, key, request, tx, at)
		select 1, 'k' || i, decode(repeat('00', 32), 'hex'), 1, now() - interval '7 days 1 hour' from generate_series(1, 3) i`)
	for _, lock := range []string{"select from fence.forget_clock for update", "select from fence.operation where key = 'k1' for update"} {
		other, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = other.Rollback(context.Background()) }()
		_, err = other.Exec(t.Context(), lock)
		require.NoError(t, err)
		_, err = store.Prune(t.Context())
		require.NoError(t, err, lock)
		require.NoError(t, other.Rollback(context.Background()))
	}
	require.Equal(t, "k1", query[string](t, pool, "select string_agg(key, ' ') from fence.operation"))
}
