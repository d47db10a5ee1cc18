// Package orm has one sale written with GORM and one with database/sql, and one that inserts a job of river. Each sale
// takes from the stock and writes an event into an outbox, in a guarded transaction. What a service that had a *sql.DB
// or a *gorm.DB changes is Guarded or bindGORM; and once its start-up: a pool, and a Guard on it.
package orm

import (
	"context"
	"database/sql"
	"errors"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardsql"
)

// ErrSoldOut: fewer are left.
var ErrSoldOut = errors.New("sold out")

// Guarded calls sell with a DB on which no earlier holder of the product can commit any more.
func Guarded(ctx context.Context, g fencekit.Runner, sku string, n int64, sell func(ctx context.Context, db *sql.DB, sku string, n int64) error) error {
	return guard.Do(ctx, g, "sku/"+sku, guardsql.With(func(ctx context.Context, db *sql.DB) error {
		return sell(ctx, db, sku, n)
	}))
}

// SellSQL is a sale with database/sql, as it was. What builds on a *sql.DB, such as sqlx, or sqlc's code, is made from
// db here.
func SellSQL(ctx context.Context, db *sql.DB, sku string, n int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var qty int64
	if err := tx.QueryRowContext(ctx, "select qty from stock where sku = $1", sku).Scan(&qty); err != nil {
		return err
	}
	if qty < n {
		return ErrSoldOut
	}
	if _, err := tx.ExecContext(ctx, "update stock set qty = $2 where sku = $1", sku, qty-n); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "insert into outbox (event, sku, qty) values ('sold', $1, $2)", sku, n); err != nil {
		return err
	}
	return tx.Commit()
}
