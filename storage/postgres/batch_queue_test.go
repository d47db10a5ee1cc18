package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Calls of batches that wait for one resource share a transaction, on one connection.
func TestBatch_ThoseThatWaitShareATransaction(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	store := newStore(t, pool, nil)
	const n = 8
	queued := make(chan int, 2*n)
	g, err := guard.New(guardtest.NewLocker(), store, &guard.Config{MaxHold: time.Hour, Observers: []*guard.Observer{{Queued: func(_ context.Context, _ string, delta int) { queued <- delta }}}})
	require.NoError(t, err)
	errs := make(chan error, n)
	require.NoError(t, guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
		for range n {
			go func() {
				var b postgres.Batch
				b.Exec("insert into item values ('x', 1) on conflict (key) do update set value = item.value + 1").MustAffect(1)
				errs <- guard.Exec(t.Context(), g, resource, &b)
			}()
			<-queued
		}
		return set("x", 0)(ctx, tx)
	}))
	for range n {
		require.NoError(t, <-errs)
	}
	holds(t, pool, "x", n)
	entries, err := store.Entries(t.Context(), resource, 0, 100)
	require.NoError(t, err)
	require.Len(t, entries, 3, "a claim, the first call, and one for all others")
	require.Len(t, entries[2].Ops, n)
	require.NoError(t, g.Close(t.Context()))
}
