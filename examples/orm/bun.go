package orm

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

type bunStock struct {
	bun.BaseModel `bun:"table:stock"`

	SKU string `bun:"sku,pk"`
	Qty int64
}

type bunEvent struct {
	bun.BaseModel `bun:"table:outbox"`

	ID    int64 `bun:",pk,autoincrement"`
	Event string
	SKU   string `bun:"sku"`
	Qty   int64
}

// bunDialect is shared: it keeps what bun has learnt about the models. Its defaults need no connection.
var bunDialect = pgdialect.New()

// SellBun is a sale with bun.
func SellBun(ctx context.Context, db *sql.DB, sku string, n int64) error {
	return sellBun(ctx, bun.NewDB(db, bunDialect), sku, n)
}

// sellBun is as it was.
func sellBun(ctx context.Context, db *bun.DB, sku string, n int64) error {
	stock := bunStock{SKU: sku}
	if err := db.NewSelect().Model(&stock).WherePK().Scan(ctx); err != nil {
		return err
	}
	if stock.Qty < n {
		return ErrSoldOut
	}
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		stock.Qty -= n
		if _, err := tx.NewUpdate().Model(&stock).WherePK().Exec(ctx); err != nil {
			return err
		}
		_, err := tx.NewInsert().Model(&bunEvent{Event: "sold", SKU: sku, Qty: n}).Exec(ctx)
		return err
	})
}
