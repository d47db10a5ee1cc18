package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// holdsLock makes a session hold the lock by which eviction finds a transaction under a token.
func holdsLock(t *testing.T, pool *pgxpool.Pool, id int64, token fence.Token) {
	t.Helper()
	locked(t, pool, "select pg_advisory_xact_lock_shared($1, $2)", int32(id), int32(token&(1<<31-1)))
}

// Transactions run under several superseded claims: the oldest of these claims stays, and what
// is older than its last entry goes.
func TestPrune_KeepsTheOldestClaimInUse(t *testing.T) {
	t.Parallel()
	const large = 1<<33 + 1<<31 - 1 // a token whose lock has a key above 1<<30
	for name, c := range map[string]struct {
		inUse []fence.Token
		want  []int64
	}{
		"none":   {nil, []int64{10, 12}},
		"oldest": {[]fence.Token{large, large + 2}, []int64{1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		"others": {[]fence.Token{large + 2, large + 1}, []int64{4, 6, 7, 8, 9, 10, 11, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			var last storage.Claim
			for i := range 4 { // 1 to 3, 4 to 6, 7 to 9, 10 to 12
				last = written(t, store, grant(large+fence.Token(i), fmt.Sprint(i)), 2)
			}
			aged(t, pool, "100 days")
			policy(t, pool, "90 days", 1)
			for _, token := range c.inUse {
				holdsLock(t, pool, last.Resource, token)
			}
			for range 2 {
				_, err := store.Prune(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.want, seqs(t, pool))
				verifyChain(t, pool)
			}
		})
	}
}

// When HoldHistory has returned nothing of the resource goes any more: it waits for a prune that
// is under way. A prune waits for a hold that is being placed.
func TestHoldHistory_WaitsForAPruneThatRuns(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	written(t, store, grant(5, "a"), 3)
	written(t, store, grant(6, "b"), 1)
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 1)
	const prune = "select o_entries + o_rejections from fence.prune_by_policy('', 1000)"

	holding := locked(t, pool, "insert into fence.hold (name, reason) values ($1, 'case 7')", resource)
	pruned := background(func() (n int64, err error) {
		err = pool.QueryRow(context.Background(), prune).Scan(&n)
		return n, err
	})
	waiting(t, pool, "relation")
	require.NoError(t, holding.Commit(t.Context()))
	require.Equal(t, result[int64]{}, receive(t, pruned))

	_, err := postgres.ReleaseHistory(t.Context(), pool, "", resource)
	require.NoError(t, err)
	pruning := locked(t, pool, "select")
	require.Positive(t, query[int64](t, pruning, prune))
	held := make(chan error, 1)
	go func() { held <- postgres.HoldHistory(t.Context(), pool, "", resource, "case 7") }()
	waiting(t, pool, "relation")
	require.NoError(t, pruning.Commit(t.Context()))
	require.NoError(t, <-held)
}

// A rejection that is counted again while it is old enough to go stays (G5), and isn't waited
// for.
func TestPrune_KeepsARejectionThatIsCountedAgain(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old := written(t, store, grant(5, "a"), 1)
	claim(t, store, grant(6, "b"))
	reject := func() {
		_, err := attempt(t.Context(), store, set("x", 99), old)
		requireRejected(t, err, storage.ReasonStale)
	}
	reject()
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 1000)
	counting := locked(t, pool, "update fence.rejection set count = count + 1, last_at = clock_timestamp()")
	prunes(t, store, postgres.Pruned{})
	require.NoError(t, counting.Commit(t.Context()))
	require.EqualValues(t, 2, query[int64](t, pool, "select count from fence.rejection"))
}

// A prune rests for as long as each transaction took, but for the last, and an
// interrupt ends the rest.
func TestPrune_Rests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, n := time.Now(), 0
		require.NoError(t, postgres.InTurns(t.Context(), func() (more bool, err error) {
			time.Sleep(time.Second)
			n++
			return n < 3, nil
		}))
		require.Equal(t, 5*time.Second, time.Since(began))

		ctx, cancel := context.WithCancel(t.Context())
		began = time.Now()
		err := postgres.InTurns(ctx, func() (more bool, err error) {
			time.Sleep(time.Second)
			time.AfterFunc(time.Second/2, cancel)
			return true, nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3*time.Second/2, time.Since(began))
	})
}

// A prune of a history with a gap would hide the gap. It leaves that history as it is, says
// so each time, and prunes what comes after it.
func TestPrune_LeavesAHistoryWithAGap(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	for i := range 6 {
		written(t, store, grantOf(fmt.Sprintf("sku/%d", i), 5), 5)
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

	// The claim that a prune has left is missing.
	unprotected(t, pool, "delete from fence.history where seq = 1 and resource = (select id from fence.resource where name = 'sku/5')")
	policy(t, pool, "90 days", 1)
	pruned, err = postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Resources: "sku/5"})
	requireNotReady(t, err, postgres.HistoryGap)
	require.Zero(t, pruned)
}
