package orm

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"
)

// SellSqlx is a sale with sqlx. The name of the driver only chooses the form of placeholders.
func SellSqlx(ctx context.Context, db *sql.DB, sku string, n int64) error {
	return sellSqlx(ctx, sqlx.NewDb(db, "pgx"), sku, n)
}

// sellSqlx is as it was.
func sellSqlx(ctx context.Context, db *sqlx.DB, sku string, n int64) error {
	var stock struct {
		SKU string
		Qty int64
	}
	if err := db.GetContext(ctx, &stock, "select * from stock where sku = $1", sku); err != nil {
		return err
	}
	if stock.Qty < n {
		return ErrSoldOut
	}
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stock.Qty -= n
	if _, err := tx.NamedExecContext(ctx, "update stock set qty = :qty where sku = :sku", stock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "insert into outbox (event, sku, qty) values ('sold', $1, $2)", sku, n); err != nil {
		return err
	}
	return tx.Commit()
}
