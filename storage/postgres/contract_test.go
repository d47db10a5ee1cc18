package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestStore_PassesTheContract(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			guardtest.TestStore(t, func(t *testing.T) guardtest.Harness[pgx.Tx] { return harness(t, newPool(t), at(level)) })
		})
	}
}

// harness adapts a store on a pool to the contract.
func harness(t *testing.T, pool *pgxpool.Pool, cfg *postgres.Config) guardtest.Harness[pgx.Tx] {
	read := func(ctx context.Context, q querier, key string) (value int64, err error) {
		err = q.QueryRow(ctx, "select coalesce((select value from item where key = $1), 0)", key).Scan(&value)
		return value, err
	}
	return guardtest.Harness[pgx.Tx]{
		Store: newStore(t, pool, cfg),
		Get:   func(ctx context.Context, tx pgx.Tx, key string) (int64, error) { return read(ctx, tx, key) },
		Set:   func(ctx context.Context, tx pgx.Tx, key string, value int64) error { return set(key, value)(ctx, tx) },
		Read:  func(ctx context.Context, key string) (int64, error) { return read(ctx, pool, key) },
	}
}
