package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// A prune of a history with a gap would hide the gap. It leaves that history as it is, says
// so each time, and prunes what comes after it.
func TestPrune_LeavesAHistoryWithAGap(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	for i := range 6 {
		g := grant(5, "a")
		g.Resource = fmt.Sprintf("sku/%d", i)
		written(t, store, g, 5)
	}
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 2)
	for i, missing := range []string{"seq = 3", "seq < 3", "seq = 4", "true"} {
		unprotected(t, pool, "delete from fence.history where "+missing+" and resource = (select id from fence.resource where name = $1)", fmt.Sprintf("sku/%d", i))
	}
	const text = "postgres: pruning: postgres: entries are missing from the history: sku/0, sku/1, sku/2 and 1 more; the prune deleted none of their entries; \"fencectl audit verify\" shows what is missing"
	before := len(seqs(t, pool))

	counted, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{DryRun: true})
	require.EqualError(t, err, text)
	requireNotReady(t, err, postgres.HistoryGap)
	require.Equal(t, postgres.Pruned{Entries: 2 * 3}, counted)

	pruned, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Resources: "sku/[0-4]"})
	require.NoError(t, err)
	require.Zero(t, pruned)
	pruned, err = postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{KeepEntries: 3})
	require.EqualError(t, err, text)
	require.Equal(t, postgres.Pruned{Entries: 2 * 2}, pruned)

	pruned, err = store.Prune(t.Context())
	require.EqualError(t, err, text)
	requireNotReady(t, err, postgres.HistoryGap)
	require.Equal(t, postgres.Pruned{Entries: 2}, pruned)
	require.Len(t, seqs(t, pool), before-6)
}

// When SetPolicy has returned nothing goes any more that only the policy before let go.
func TestSetPolicy_WaitsForAPruneThatRuns(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	for i := range 2 {
		g := grant(5, "a")
		g.Resource = fmt.Sprintf("sku/%d", i)
		written(t, store, g, 5)
	}
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 2)
	steadyFor(t, pool, "8 days")
	for _, prune := range []string{
		"select o_entries from fence.prune_by_policy('', 1)",
		"select count(*) from fence.prunable('', '%', null, null, 1)",
		"select o_count from fence.forget(1, false)",
	} {
		pruning, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = pruning.Rollback(context.Background()) }()
		query[int64](t, pruning, prune)
		set := background(func() (struct{}, error) {
			return struct{}{}, postgres.SetPolicy(t.Context(), pool, "", postgres.Policy{KeepEntries: 2, KeepOnce: 1000 * 24 * 3600e9})
		})
		waiting(t, pool, "transactionid")
		require.NoError(t, pruning.Commit(t.Context()))
		require.NoError(t, (<-set).err)
		policy(t, pool, "90 days", 2)
		mustExec(t, pool, "update fence.setting set once_retention = '7 days'")
	}
}
