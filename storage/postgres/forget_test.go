package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func steadyFor(t testing.TB, pool *pgxpool.Pool, interval string) {
	t.Helper()
	mustExec(t, pool, "update fence.forget_clock set seen = clock_timestamp(), steady = clock_timestamp() - $1::text::interval", interval)
}

// setForward has the effect of setting the clock forward: everything that was written before is older by that much.
func setForward(t testing.TB, pool *pgxpool.Pool, interval string) {
	t.Helper()
	mustExec(t, pool, "update fence.operation set at = at - $1::text::interval", interval)
	mustExec(t, pool, "update fence.forget_clock set seen = seen - $1::text::interval, steady = steady - $1::text::interval", interval)
}

func TestPrune_IsNotMisledByAClockThatJumped(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	g := newGuard(t, store)
	_, err := store.Prune(t.Context())
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
		prunes(t, store, postgres.Pruned{})
	}
	order()
	holds(t, pool, "x", 1)

	// Only after calls have seen the clock go steadily for the retention.
	steadyFor(t, pool, "6 days 23 hours")
	prunes(t, store, postgres.Pruned{})
	steadyFor(t, pool, "7 days 1 hour")
	prunes(t, store, postgres.Pruned{OnceKeys: 1})
}

// The bounds of the call lie within those of the table, which no SQL passes.
func TestPolicy_IsBounded(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	good := postgres.Policy{Keep: time.Hour, KeepEntries: 1, KeepOnce: time.Minute}
	require.NoError(t, postgres.SetPolicy(t.Context(), pool, "", good))
	for _, change := range []func(*postgres.Policy){
		func(p *postgres.Policy) { p.Keep = -1 },
		func(p *postgres.Policy) { p.Keep = time.Hour - 1 },
		func(p *postgres.Policy) { p.Keep = 100_001 * 24 * time.Hour },
		func(p *postgres.Policy) { p.KeepEntries = 0 },
		func(p *postgres.Policy) { p.KeepOnce = time.Minute - 1 },
		func(p *postgres.Policy) { p.KeepOnce = 100_001 * 24 * time.Hour },
	} {
		p := good
		change(&p)
		require.ErrorIs(t, postgres.SetPolicy(t.Context(), pool, "", p), fence.ErrInvalid)
	}
	for _, set := range []string{"history_keep = '59 minutes'", "history_keep = '278 years'", "history_keep_entries = 0", "once_retention = '59 seconds'", "once_retention = '278 years'"} {
		_, err := pool.Exec(t.Context(), "update fence.setting set "+set)
		require.ErrorContains(t, err, "23514", set)
	}
	read, err := postgres.ReadPolicy(t.Context(), pool, "")
	require.NoError(t, err)
	require.Equal(t, good, read)
}

func TestPrune_KeepsOnceKeysForAsLongAsThePolicySays(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	prunes(t, store, postgres.Pruned{})
	mustExec(t, pool, `insert into fence.operation (resource, key, request, tx, at)
		select 1, 'k' || i, decode(repeat('00', 32), 'hex'), 1, now() - case when i <= 3500 then interval '7 days 1 hour' else interval '6 days 23 hours' end
		from generate_series(1, 3600) i`)
	owner := func(want int64, r postgres.PruneOptions) {
		t.Helper()
		pruned, err := postgres.Prune(t.Context(), pool, "", r)
		require.NoError(t, err)
		require.Equal(t, postgres.Pruned{OnceKeys: want}, pruned)
	}
	owner(0, postgres.PruneOptions{DryRun: true}) // the clock hasn't gone steadily for as long
	steadyFor(t, pool, "8 days")
	owner(3500, postgres.PruneOptions{DryRun: true})
	owner(0, postgres.PruneOptions{Resources: "*"})
	prunes(t, store, postgres.Pruned{OnceKeys: 3500})
	mustExec(t, pool, "update fence.setting set once_retention = '1 day'")
	owner(100, postgres.PruneOptions{Keep: 1000 * time.Hour})
	setForward(t, pool, "10 days")
	_, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{})
	requireNotReady(t, err, postgres.ClockJumped)
}

// A clock that is set back between two calls, and forward again, doesn't make young
// operations old; if a call finds the clock set back, the retention begins anew.
func TestPrune_IsNotMisledByAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
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
