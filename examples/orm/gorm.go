package orm

import (
	"context"
	"database/sql"
	"time"

	"gorm.io/driver/postgres"
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

// GORM returns a sale with base's settings. base keeps its own connections for all else.
func GORM(base *gorm.DB) func(ctx context.Context, db *sql.DB, sku string, n int64) error {
	return func(ctx context.Context, db *sql.DB, sku string, n int64) error {
		bound, err := bindGORM(ctx, base, db)
		if err != nil {
			return err
		}
		return sellGORM(bound, sku, n)
	}
}

// bindGORM returns a GORM on db with base's settings. A Session of base wouldn't do: it shares base's cache of
// prepared statements and base's callbacks, and both choose a connection for each statement. So base's callbacks and
// plugins, such as dbresolver, are left behind: register here those that choose no connection. It sends nothing, and
// costs some 300 allocations; each call parses its models anew.
func bindGORM(ctx context.Context, base *gorm.DB, db *sql.DB) (*gorm.DB, error) {
	c := base.Config
	bound, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{
		NamingStrategy: c.NamingStrategy, Logger: c.Logger, NowFunc: c.NowFunc, TranslateError: c.TranslateError,
		FullSaveAssociations: c.FullSaveAssociations, QueryFields: c.QueryFields, CreateBatchSize: c.CreateBatchSize,
		AllowGlobalUpdate: c.AllowGlobalUpdate, PropagateUnscoped: c.PropagateUnscoped, DryRun: c.DryRun,
		DisableNestedTransaction: c.DisableNestedTransaction, DefaultContextTimeout: c.DefaultContextTimeout,
		DefaultTransactionTimeout: c.DefaultTransactionTimeout,
		SkipDefaultTransaction:    true, // each write would be wrapped in a savepoint: two round trips more
		DisableAutomaticPing:      true, // a round trip
		PrepareStmtTTL:            noExpiry,
	})
	if err != nil {
		return nil, err
	}
	return bound.WithContext(ctx), nil
}

// noExpiry is GORM's own value for statements that don't expire. With any other, a Session with PrepareStmt leaves a
// goroutine behind in each call.
const noExpiry = 10 * 365 * 24 * time.Hour

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
