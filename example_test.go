package fencekit_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

func Example() {
	ctx := context.Background()
	client, pool := connect(ctx)
	defer client.Close()
	defer pool.Close()

	if err := sell(ctx, client, pool); err != nil {
		log.Fatal(err)
	}
	var left int
	if err := pool.QueryRow(ctx, "select qty from stock where sku = '42'").Scan(&left); err != nil {
		log.Fatal(err)
	}
	fmt.Println("left:", left)
	// Output: left: 1
}

// One process at a time restocks; Guard.UnderLease runs its transactions under the
// grant of its election.
func Example_election() {
	ctx := context.Background()
	client, pool := connect(ctx)
	defer client.Close()
	defer pool.Close()

	if err := lead(ctx, client, pool); err != nil {
		log.Fatal(err)
	}
	var left int
	if err := pool.QueryRow(ctx, "select qty from stock where sku = '42'").Scan(&left); err != nil {
		log.Fatal(err)
	}
	fmt.Println("left:", left)
	// Output: left: 13
}

func lead(ctx context.Context, client *clientv3.Client, pool *pgxpool.Pool) error {
	locker, err := etcd.NewLocker(client, nil)
	if err != nil {
		return err
	}
	defer locker.Close(ctx)
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		return err
	}
	g, err := guard.New(locker, store, nil)
	if err != nil {
		return err
	}
	defer g.Close(ctx)

	election, err := locker.Election("restocker")
	if err != nil {
		return err
	}
	leadership, err := election.Campaign(ctx, "10.0.0.7:8080") // returns when this process leads
	if err != nil {
		return err
	}
	defer leadership.Resign(ctx)
	resource := leadership.Grant().Resource
	return guard.Do(ctx, g.UnderLease(leadership), resource, func(ctx context.Context, tx pgx.Tx) error { // as often as there is work; rejected once the next leader has begun
		_, err := tx.Exec(ctx, "update stock set qty = qty + 10 where sku = '42'")
		return err
	})
}

var errSoldOut = errors.New("sold out")

// The body of sell is the README's example.
func sell(ctx context.Context, client *clientv3.Client, pool *pgxpool.Pool) error {
	locker, err := etcd.NewLocker(client, nil)
	if err != nil {
		return err
	}
	defer locker.Close(ctx)
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		return err
	}
	g, err := guard.New(locker, store, nil)
	if err != nil {
		return err
	}
	defer g.Close(ctx)

	return guard.Do(ctx, g, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
		var qty int // read, decide, write: nobody older can commit any more
		if err := tx.QueryRow(ctx, "select qty from stock where sku = '42'").Scan(&qty); err != nil {
			return err
		}
		if qty < 2 {
			return errSoldOut
		}
		_, err := tx.Exec(ctx, "update stock set qty = $1 where sku = '42'", qty-2)
		return err
	})
}
