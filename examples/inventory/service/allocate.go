package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrSoldOut: less is available than an order asks for.
var ErrSoldOut = errors.New("sold out")

// Order asks for a quantity of a product.
type Order struct {
	ID       string
	SKU      string
	Quantity int
}

// Lot is a delivery of a product, with what is still available of it.
type Lot struct {
	ID        int64
	Available int
}

// Line reserves a part of a lot for an order.
type Line struct {
	Lot      int64
	Quantity int
}

// Resource is what stands for a product in locks and fences.
func Resource(sku string) string { return "sku/" + sku }

// Allocate reserves order.Quantity units, oldest lots first. It reads what is
// available, decides, and writes reservation lines. Run it under guard.Do, for the
// resource that stands for the product: then no other process has allocated in between.
func Allocate(ctx context.Context, tx pgx.Tx, order Order, decide Decision) ([]Line, error) {
	lots, err := readLots(ctx, tx, order.SKU)
	if err != nil {
		return nil, err
	}
	lines, err := decide(lots, order.Quantity)
	if err != nil {
		return nil, err
	}
	return lines, writeLines(ctx, tx, order, lines)
}

// Decision chooses from which lots an order is served.
type Decision func(lots []Lot, quantity int) ([]Line, error)

// OldestFirst serves an order from the oldest lots, wholly or not at all.
func OldestFirst(lots []Lot, quantity int) ([]Line, error) {
	var lines []Line
	for _, lot := range lots {
		if take := min(quantity, lot.Available); take > 0 {
			lines = append(lines, Line{lot.ID, take})
			quantity -= take
		}
	}
	if quantity > 0 {
		return nil, ErrSoldOut
	}
	return lines, nil
}

func readLots(ctx context.Context, tx pgx.Tx, sku string) ([]Lot, error) {
	rows, err := tx.Query(ctx, `
		select l.id, l.quantity - coalesce(sum(r.quantity), 0)
		  from lot l left join reservation r on r.lot = l.id
		 where l.sku = $1
		 group by l.id, l.quantity, l.received
		 order by l.received, l.id`, sku)
	if err != nil {
		return nil, fmt.Errorf("reading lots of %s: %w", sku, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Lot])
}

func writeLines(ctx context.Context, tx pgx.Tx, order Order, lines []Line) error {
	for _, line := range lines {
		_, err := tx.Exec(ctx, "insert into reservation (order_id, lot, quantity) values ($1, $2, $3)", order.ID, line.Lot, line.Quantity)
		if err != nil {
			return fmt.Errorf("reserving for order %s: %w", order.ID, err)
		}
	}
	return nil
}

func Available(lots []Lot) int {
	sum := 0
	for _, lot := range lots {
		sum += lot.Available
	}
	return sum
}
