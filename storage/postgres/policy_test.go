package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres"
)

// What was set is read, also if it was set by SQL.
func TestPolicy_IsReadAndSet(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	const day = 24 * time.Hour
	read := func() postgres.Policy {
		t.Helper()
		p, err := postgres.ReadPolicy(t.Context(), pool, "")
		require.NoError(t, err)
		return p
	}
	require.Equal(t, postgres.Policy{KeepEntries: 1000, KeepOnce: 7 * day}, read())
	for want, p := range map[string]postgres.Policy{
		"90 days 1 7 days":                {Keep: 90 * day, KeepEntries: 1, KeepOnce: 7 * day},
		"1 day 12:00:00 1000 00:01:00":    {Keep: 36 * time.Hour, KeepEntries: 1000, KeepOnce: time.Minute},
		"100000 days 1000000 100000 days": {Keep: 100_000 * day, KeepEntries: 1_000_000, KeepOnce: 100_000 * day},
		"5 7 days":                        {KeepEntries: 5, KeepOnce: 7 * day},
	} {
		require.NoError(t, postgres.SetPolicy(t.Context(), pool, "", p))
		require.Equal(t, want, query[string](t, pool, "select concat_ws(' ', history_keep, history_keep_entries, once_retention) from fence.setting"))
		require.Equal(t, p, read())
	}
	mustExec(t, pool, "update fence.setting set history_keep = '3 months', history_keep_entries = 5, once_retention = '2 weeks'")
	require.Equal(t, postgres.Policy{Keep: 90 * day, KeepEntries: 5, KeepOnce: 14 * day}, read())
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
