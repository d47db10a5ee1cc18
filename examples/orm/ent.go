package orm

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
)

// SellEnt is a sale with ent's driver and SQL builder. A generated client takes the same driver:
// ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db))).
func SellEnt(ctx context.Context, db *sql.DB, sku string, n int64) error {
	return sellEnt(ctx, entsql.OpenDB(dialect.Postgres, db), sku, n)
}

// sellEnt is as it was.
func sellEnt(ctx context.Context, client dialect.Driver, sku string, n int64) error {
	build := entsql.Dialect(dialect.Postgres)
	query, args := build.Select("qty").From(entsql.Table("stock")).Where(entsql.EQ("sku", sku)).Query()
	var rows entsql.Rows
	if err := client.Query(ctx, query, args, &rows); err != nil {
		return err
	}
	qty, err := entsql.ScanInt64(&rows) // reads them to their end, and doesn't close them
	if err := rows.Close(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if qty < n {
		return ErrSoldOut
	}
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	query, args = build.Update("stock").Set("qty", qty-n).Where(entsql.EQ("sku", sku)).Query()
	if err := tx.Exec(ctx, query, args, nil); err != nil {
		return err
	}
	query, args = build.Insert("outbox").Columns("event", "sku", "qty").Values("sold", sku, n).Query()
	if err := tx.Exec(ctx, query, args, nil); err != nil {
		return err
	}
	return tx.Commit()
}
