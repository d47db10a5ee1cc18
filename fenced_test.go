package fencekit_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The whole test of a guarded function of one's own: a store on a test database, the
// function, and what it changes.

func TestDeductLeft_IsFenced(t *testing.T) {
	t.Parallel()
	pool, store := stocked(t)
	stock := func(ctx context.Context) (qty int, err error) {
		err = pool.QueryRow(ctx, "select qty from stock where sku = '42'").Scan(&qty)
		return qty, err
	}
	guardtest.RequireFenced(t, store, "sku/42", func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
		_, err := deductLeft(ctx, p.Guard, "42", 1)
		return err
	}, stock)
	guardtest.RequireFenced(t, store, "sku/42", func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
		_, err := deductLeft(ctx, p.Guard.UnderGrant(p.Grants...), "42", 1) // as in a service that is sent the grant
		return err
	}, stock)
}

func TestTransfer_TakesEffectOnce(t *testing.T) {
	t.Parallel()
	pool, store := stocked(t)
	resources := []string{"account/a", "account/b"}
	guardtest.RequireIdempotent(t, store, resources, func(ctx context.Context, p guardtest.Process[pgx.Tx]) (receipt, error) {
		return transfer(ctx, p.Guard, "a", "b", 3, "key", []byte("request"))
	}, func(ctx context.Context) (balances []int, err error) {
		err = pool.QueryRow(ctx, "select array_agg(balance order by name) from account").Scan(&balances)
		return balances, err
	})
	var a int
	require.NoError(t, pool.QueryRow(t.Context(), "select balance from account where name = 'a'").Scan(&a))
	require.Equal(t, 7, a)
}

// stocked is a store on a database that no lock service has served, with the examples' tables.
func stocked(t *testing.T) (*pgxpool.Pool, *postgres.Store) {
	t.Helper()
	pool := migratedPool(t)
	_, err := pool.Exec(t.Context(), tables)
	require.NoError(t, err)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	return pool, store
}
