package orm

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
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

// Bun returns a sale with base's dialect, which keeps what bun has learnt about the models.
func Bun(base *bun.DB) func(ctx context.Context, db *sql.DB, sku string, n int64) error {
	return func(ctx context.Context, db *sql.DB, sku string, n int64) error {
		return sellBun(ctx, bindBun(base, db), sku, n)
	}
}

// bindBun returns a bun.DB on db. base's resolver of connections stays behind, as its hooks and options do: give
// NewDB again those that choose no connection.
func bindBun(base *bun.DB, db *sql.DB) *bun.DB { return bun.NewDB(db, base.Dialect()) }

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
