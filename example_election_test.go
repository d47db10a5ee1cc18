package fencekit_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

// restock puts deliveries into the stock for as long as this process leads. What it
// writes is rejected once the next leader has begun.
func restock(ctx context.Context, g *fencekit.Guard, deliveries <-chan int) error {
	election, err := g.Election("restocker")
	if err != nil {
		return err
	}
	leadership, err := election.Campaign(ctx, "10.0.0.7:8080") // returns when this process leads
	if err != nil {
		return err
	}
	defer leadership.Resign(context.WithoutCancel(ctx))
	for {
		select {
		case n, more := <-deliveries:
			if !more {
				return nil
			}
			err := guard.Do(ctx, g.UnderLease(leadership), "restocker", func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "update stock set qty = qty + $1 where sku = '42'", n)
				return err
			})
			if err != nil {
				return err
			}
		case <-leadership.Context().Done():
			return context.Cause(leadership.Context())
		}
	}
}

// One process at a time restocks, under the grant of its election.
func Example_election() {
	ctx := context.Background()
	client, pool := connect(ctx)
	defer client.Close()
	defer pool.Close()
	g, err := fencekit.New(client, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)

	deliveries := make(chan int, 2)
	deliveries <- 10
	deliveries <- 5
	close(deliveries)
	fmt.Println(restock(ctx, g, deliveries))
	var left int
	if err := pool.QueryRow(ctx, "select qty from stock where sku = '42'").Scan(&left); err != nil {
		log.Fatal(err)
	}
	fmt.Println(left, "in stock")
	// Output:
	// <nil>
	// 18 in stock
}
