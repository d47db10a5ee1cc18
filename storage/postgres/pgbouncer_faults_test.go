package postgres_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage"
)

// commit commits in the background.
func commit(txn storage.Txn[pgx.Tx]) <-chan result[[]storage.Claim] {
	return background(func() ([]storage.Claim, error) { return txn.Commit(context.Background(), nil) })
}
