package orm

import (
	"context"
	"database/sql"

	"gorm.io/gorm"
)

// gormStock is a row of stock.
type gormStock struct {
	SKU string `gorm:"column:sku;primaryKey"`
	Qty int64
}

func (gormStock) TableName() string { return "stock" }

// gormEvent is a row of outbox.
type gormEvent struct {
	ID    int64
	Event string
	SKU   string `gorm:"column:sku"`
	Qty   int64
}

func (gormEvent) TableName() string { return "outbox" }

// GORM returns a sale with base's models, naming and callbacks. base keeps its own connection for all else.
func GORM(base *gorm.DB) func(ctx context.Context, db *sql.DB, sku string, n int64) error {
	return func(ctx context.Context, db *sql.DB, sku string, n int64) error {
		return sellGORM(bindGORM(ctx, base, db), sku, n)
	}
}

// bindGORM returns base on db. That opens nothing and costs a few allocations. Without SkipDefaultTransaction GORM
// would wrap each write in a savepoint of its own: two round trips more.
func bindGORM(ctx context.Context, base *gorm.DB, db *sql.DB) *gorm.DB {
	bound := base.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	bound.Statement.ConnPool = db // of this session: Context makes it copy the Statement
	return bound
}

// sellGORM is as it was.
func sellGORM(db *gorm.DB, sku string, n int64) error {
	var stock gormStock
	if err := db.First(&stock, "sku = ?", sku).Error; err != nil {
		return err
	}
	if stock.Qty < n {
		return ErrSoldOut
	}
	return db.Transaction(func(tx *gorm.DB) error {
		stock.Qty -= n
		if err := tx.Save(&stock).Error; err != nil {
			return err
		}
		return tx.Create(&gormEvent{Event: "sold", SKU: sku, Qty: n}).Error
	})
}
