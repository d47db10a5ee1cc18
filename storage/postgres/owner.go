package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// asOwner runs a transaction that doesn't depend on the defaults of database and role: at READ
// COMMITTED, and with names in UTF-8.
func asOwner(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local client_encoding = 'UTF8'"); err != nil {
			return err
		}
		return fn(tx)
	})
}
