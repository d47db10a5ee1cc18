package resource

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

const prefix = "sku/"

func resource(sku string) string { return prefix + sku }

func sell(ctx context.Context, g fencekit.Runner, sku string) error {
	return guard.Do(ctx, g, resource(sku), func(ctx context.Context, tx pgx.Tx) error { return set(ctx, tx, sku, 1) })
}

func set(ctx context.Context, tx pgx.Tx, sku string, n int) error {
	_, err := tx.Exec(ctx, "update stock set qty = $2 where sku = $1", sku, n)
	return err
}

func correct(ctx context.Context, g fencekit.Runner, sku string) error {
	return guard.Do(ctx, g, "product/"+sku, func(ctx context.Context, tx pgx.Tx) error { // want `stock.qty is updated under product/ here, and under sku/ in resource.go:19: calls exclude each other only if they share a resource; name it alike, or name both in one call`
		_, err := tx.Exec(ctx, "UPDATE stock AS s SET seen = now(), qty = coalesce($2, 0) WHERE s.sku = $1", sku, 3)
		return err
	})
}

func deliver(ctx context.Context, g fencekit.Runner, sku string) error {
	both := []string{"restocker", fmt.Sprintf("stock/%s", sku)}
	return guard.Do(ctx, g, both, func(ctx context.Context, tx pgx.Tx) error { // want `stock.qty is updated under restocker, stock/ here`
		_, err := tx.Exec(ctx, "insert into stock (sku, qty) values ($1, 1) on conflict (sku) do update set qty = excluded.qty", sku)
		return err
	})
}

// From here on nothing is found.

func price(ctx context.Context, g fencekit.Runner, sku string) error {
	return guard.Do(ctx, g, "price/"+sku, func(ctx context.Context, tx pgx.Tx) error { // another column
		_, err := tx.Exec(ctx, "update stock set price = 1 where sku = $1", sku)
		return err
	})
}

func audit(ctx context.Context, g fencekit.Runner, user string) error {
	return guard.Do(ctx, g, "user/"+user, func(ctx context.Context, tx pgx.Tx) error { // a new row
		_, err := tx.Exec(ctx, "insert into stock (sku, qty) values ($1, 1)", user)
		return err
	})
}

func both(ctx context.Context, g fencekit.Runner, sku string) error {
	both := []string{"restocker", resource(sku)}
	return guard.Do(ctx, g, both, func(ctx context.Context, tx pgx.Tx) error { return set(ctx, tx, sku, 1) })
}

func some(ctx context.Context, g fencekit.Runner, sku string) error {
	return guard.Do(ctx, g, "seller/"+sku, func(ctx context.Context, tx pgx.Tx) error { // rows of another kind
		_, err := tx.Exec(ctx, "update stock set qty = 0 where kind = 'consigned' and seller = $1", sku)
		return err
	})
}

func held(ctx context.Context, g fencekit.Runner, pool *pgxpool.Pool) error {
	return guard.Hold(ctx, g, "report", func(ctx context.Context, h fencekit.Runner) error { // which guards none of it
		_, err := pool.Exec(ctx, "update stock set qty = 0")
		return err
	})
}

func unknown(ctx context.Context, g fencekit.Runner, name, sku string) error {
	return guard.Do(ctx, g, name, func(ctx context.Context, tx pgx.Tx) error { return set(ctx, tx, sku, 1) })
}
