package service

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage/postgres"
)

//go:embed schema.sql
var schemaSQL string

// SKU is the scarce product, delivered in four lots.
const SKU = "lamp-7"

var lotSizes = []int{40, 30, 20, 10}

// OnHand is how much there is of the product, in all lots.
func OnHand() int {
	sum := 0
	for _, size := range lotSizes {
		sum += size
	}
	return sum
}

// SetUp makes the tables, Fencekit's included, and puts the product in stock, unless they are there.
func SetUp(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var exists bool
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('inventory'))"); err != nil { // several pods begin at once
			return err
		}
		if err := tx.QueryRow(ctx, "select to_regclass('lot') is not null").Scan(&exists); err != nil || exists {
			return err
		}
		if _, err := tx.Exec(ctx, schemaSQL); err != nil {
			return fmt.Errorf("creating the inventory's tables: %w", err)
		}
		for day, size := range lotSizes {
			_, err := tx.Exec(ctx, "insert into lot (sku, received, quantity) values ($1, date '2026-01-01' + $2::int, $3)", SKU, day, size)
			if err != nil {
				return fmt.Errorf("stocking %s: %w", SKU, err)
			}
		}
		return nil
	})
}

// Stock is how much there was of the product, and how much is reserved.
type Stock struct{ OnHand, Reserved int }

// Oversold is how much more is reserved than there was.
func (s Stock) Oversold() int { return max(0, s.Reserved-s.OnHand) }

// ReadStock reads what there is of the product.
func ReadStock(ctx context.Context, pool *pgxpool.Pool) (Stock, error) {
	var s Stock
	err := pool.QueryRow(ctx, `
		select (select coalesce(sum(quantity), 0) from lot where sku = $1),
		       (select coalesce(sum(r.quantity), 0) from reservation r join lot l on l.id = r.lot where l.sku = $1)`, SKU).
		Scan(&s.OnHand, &s.Reserved)
	if err != nil {
		return s, fmt.Errorf("reading the stock of %s: %w", SKU, err)
	}
	return s, nil
}
