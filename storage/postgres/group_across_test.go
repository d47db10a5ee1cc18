package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// group is a transaction of one batch under each claim.
func group(ctx context.Context, store *postgres.Store, claims []storage.Claim, batches ...*postgres.Batch) ([]storage.Claim, error) {
	txn, err := store.BeginGroup(ctx, func() []storage.Claim { return claims })
	if err != nil {
		return nil, err
	}
	defer txn.Rollback(ctx)
	moves := make([]storage.Move, len(batches))
	for i, b := range batches {
		moves[i].Ops = []storage.OpRecord{{ID: fmt.Sprint(i)}}
		if err := txn.Run(ctx, b); err != nil {
			return nil, err
		}
	}
	return txn.Commit(ctx, moves)
}

func inserts(key string) *postgres.Batch {
	b, s := batchOf(insertItem, key, 1)
	s.MustAffect(1)
	return b
}

// A resource of a group is claimed when the begin check has passed, and without an eviction: then only
// the seal of that resource is left to reject the group.
func TestGroupAcross_SealsAllOrNone(t *testing.T) {
	t.Parallel()
	for stale, resource := range []string{"sku/1", "sku/2"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			claims := []storage.Claim{claim(t, store, grantOf("sku/1", 5)), claim(t, store, grantOf("sku/2", 5))}
			txn, err := store.BeginGroup(t.Context(), func() []storage.Claim { return claims })
			require.NoError(t, err)
			defer txn.Rollback(t.Context())
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			claimOnly(t, pool, grantOf(resource, 6))
			_, err = txn.Commit(t.Context(), nil)
			require.Equal(t, resource, requireRejected(t, err, storage.ReasonStale).Grant.Resource)
			require.Zero(t, query[int](t, pool, "select count(*) from item"))
			_, err = group(t.Context(), store, claims[1-stale:2-stale], inserts("x"))
			require.NoError(t, err, "the other's position is what it was")
		})
	}
}

// A group doesn't wait for a row's lock for as long as a batch that runs alone. That one
// waits until it has the lock.
func TestGroupAcross_WaitsForALockBriefly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	cfg := patient()
	cfg.Times().Lock = time.Hour
	store := newStore(t, pool, cfg)
	claims := []storage.Claim{claim(t, store, grantOf("sku/1", 5)), claim(t, store, grantOf("sku/2", 5))}
	limit := func(key string) *postgres.Batch {
		b, _ := batchOf("insert into item select $1, setting::bigint from pg_settings where name = 'lock_timeout'", key)
		return b
	}
	claims, err := group(t.Context(), store, claims, limit("group"), inserts("x"))
	require.NoError(t, err)
	alone, err := group(t.Context(), store, claims[:1], limit("alone"))
	require.NoError(t, err)
	claims[0] = alone[0]
	holds(t, pool, "group", 100)
	holds(t, pool, "alone", time.Hour.Milliseconds())

	tx := locked(t, pool, "update item set value = 2 where key = 'x'")
	change := func() *postgres.Batch { b, _ := batchOf(addToItem, "x", 40); return b }
	_, err = group(t.Context(), store, claims, change(), inserts("y"))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "55P03", pgErr.Code)
	waits := background(func() ([]storage.Claim, error) { return group(t.Context(), store, claims[:1], change()) })
	eventually(t, pool, "select count(*) = 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, (<-waits).err)
	holds(t, pool, "x", 42)
}
