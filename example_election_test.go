package fencekit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// restock puts all deliveries into the stock, in the one process that leads.
func restock(ctx context.Context, g *fencekit.Client, address string) error {
	election, err := g.Election("restocker")
	if err != nil {
		return err
	}
	for {
		err := lead(ctx, g, election, address)
		if !guard.SafeToStartOver(err) {
			return err
		}
		log.Printf("restocker campaigns again: %v", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func lead(ctx context.Context, g *fencekit.Client, election fence.Election, address string) error {
	leadership, err := election.Campaign(ctx, address) // returns when this process leads
	if err != nil {
		return err
	}
	defer leadership.Resign(context.WithoutCancel(ctx))
	for more := true; more && err == nil; {
		more, err = receive(ctx, g, leadership)
	}
	return err
}

// receive puts the oldest delivery into the stock. Deliveries are the leader's alone. The stock is
// not: whoever sells writes it as sku/42, so the leader needs that resource too.
func receive(ctx context.Context, g *fencekit.Client, leadership fence.Leadership) (more bool, err error) {
	id, sku, err := nextDelivery(ctx, g.UnderLease(leadership))
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	lease, err := g.Locker.Acquire(ctx, "sku/"+sku)
	if err != nil {
		return false, err
	}
	defer lease.Release(context.WithoutCancel(ctx))
	both := []string{"restocker", "sku/" + sku}
	return true, guard.Do(ctx, g.UnderLease(leadership, lease), both, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `with arrived as (delete from delivery where id = $1 returning *)
			update stock s set qty = s.qty + a.qty from arrived a where a.sku = s.sku`, id)
		return err
	})
}

func nextDelivery(ctx context.Context, on fencekit.Runner) (id int, sku string, err error) {
	err = guard.Do(ctx, on, "restocker", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select id, sku from delivery order by id limit 1").Scan(&id, &sku)
	}, guard.ReadOnly())
	return id, sku, err
}

// report counts the stock once a day, whichever process asks first.
func report(ctx context.Context, on fencekit.Runner, day time.Time) (pieces int, err error) {
	return guard.Value(ctx, on, "report", func(ctx context.Context, tx pgx.Tx) (pieces int, err error) {
		err = tx.QueryRow(ctx, "insert into report select $1, sum(qty) from stock returning pieces", day).Scan(&pieces)
		return pieces, err
	}, guard.Once(day.Format(time.DateOnly), nil))
}

// One process at a time restocks, under the grant of its election, beside those that sell.
func Example_election() {
	ctx := context.Background()
	g, pool, done := open(ctx)
	defer done()

	if _, err := pool.Exec(ctx, "insert into delivery values (1, '42', 10), (2, '42', 5)"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(restock(ctx, g, "10.0.0.7:8080"))
	fmt.Println(deductLeft(ctx, g, "42", 2))
	day := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(report(ctx, g, day))
	fmt.Println(deductLeft(ctx, g, "42", 2))
	fmt.Println(report(ctx, g, day))
	// Output:
	// <nil>
	// {16} <nil>
	// 16 <nil>
	// {14} <nil>
	// 16 <nil>
}
