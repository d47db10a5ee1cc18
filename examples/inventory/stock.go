package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage/postgres"
)

//go:embed schema.sql
var schemaSQL string

// sku is the scarce product, delivered in four lots.
const sku = "lamp-7"

var lotSizes = []int{40, 30, 20, 10}

// setUp makes the tables, Fencekit's included, and puts the product in stock.
func setUp(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, schemaSQL); err != nil {
		return fmt.Errorf("creating the inventory's tables: %w", err)
	}
	for day, size := range lotSizes {
		_, err := pool.Exec(ctx, "insert into lot (sku, received, quantity) values ($1, date '2026-01-01' + $2::int, $3)", sku, day, size)
		if err != nil {
			return fmt.Errorf("stocking %s: %w", sku, err)
		}
	}
	return nil
}

// stock is how much there was of the product, and how much is reserved.
type stock struct{ OnHand, Reserved int }

func (s stock) oversold() int { return max(0, s.Reserved-s.OnHand) }

func readStock(ctx context.Context, pool *pgxpool.Pool) (stock, error) {
	var s stock
	err := pool.QueryRow(ctx, `
		select (select coalesce(sum(quantity), 0) from lot where sku = $1),
		       (select coalesce(sum(r.quantity), 0) from reservation r join lot l on l.id = r.lot where l.sku = $1)`, sku).
		Scan(&s.OnHand, &s.Reserved)
	if err != nil {
		return s, fmt.Errorf("reading the stock of %s: %w", sku, err)
	}
	return s, nil
}
