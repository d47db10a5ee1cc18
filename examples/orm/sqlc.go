package orm

import (
	"context"
	"database/sql"

	"github.com/fencekit/fencekit/examples/orm/sqlc"
)

// SellSqlc is a sale with what sqlc generates for database/sql. It is as it was.
func SellSqlc(ctx context.Context, db *sql.DB, sku string, n int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	q := sqlc.New(db).WithTx(tx)
	qty, err := q.Stock(ctx, sku)
	if err != nil {
		return err
	}
	if qty < n {
		return ErrSoldOut
	}
	if err := q.SetStock(ctx, sqlc.SetStockParams{Sku: sku, Qty: qty - n}); err != nil {
		return err
	}
	if err := q.AddEvent(ctx, sqlc.AddEventParams{Event: "sold", Sku: sku, Qty: n}); err != nil {
		return err
	}
	return tx.Commit()
}
