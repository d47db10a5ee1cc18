package demo

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readSold returns what each worker has sold, by what the database has. What workers tell may
// still be on its way.
func readSold(ctx context.Context, pool *pgxpool.Pool) (map[string]int, error) {
	rows, err := pool.Query(ctx, `select regexp_replace(order_id, '-[0-9]+$', ''), sum(quantity) from reservation group by 1`)
	if err != nil {
		return nil, err
	}
	sold := map[string]int{}
	var worker string
	var quantity int
	_, err = pgx.ForEachRow(rows, []any{&worker, &quantity}, func() error {
		sold[worker] = quantity
		return nil
	})
	return sold, err
}
