package fencekit_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

var errSoldOut = errors.New("sold out")

// deduct takes n of a product from the stock. It runs again by itself after what left no
// trace, such as a deadlock or a takeover by another process.
func deduct(ctx context.Context, on fencekit.Runner, sku string, n int) error {
	return guard.Do(ctx, on, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error {
		_, err := take(ctx, tx, sku, n)
		return err
	}, guard.Retryable())
}

// deductLeft says what is left. Its callers decide whether to call again.
func deductLeft(ctx context.Context, on fencekit.Runner, sku string, n int) (sold, error) {
	return guard.Value(ctx, on, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) (sold, error) {
		return take(ctx, tx, sku, n)
	})
}

// A Guard, a write, a value, and what an error says about calling again. take reads,
// decides and writes.
func Example() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()
	g, err := fencekit.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)

	fmt.Println(deduct(ctx, g, "42", 1))
	fmt.Println(deductLeft(ctx, g, "42", 1))
	err = deduct(ctx, g, "42", 2)
	fmt.Println(err, errors.Is(err, errSoldOut), guard.SafeToRetry(err))
	// Output:
	// <nil>
	// {1} <nil>
	// sold out true false
}
