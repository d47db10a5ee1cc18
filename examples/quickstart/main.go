// Command quickstart makes a first guarded write. It needs a Postgres: DATABASE_URL says where it is. If ETCD_ENDPOINT
// says where an etcd is, its locks are there.
package main

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
)

const stock = ` -- your own table
	create table if not exists stock (sku text primary key, qty int not null);
	insert into stock values ('42', 10) on conflict do nothing`

var errSoldOut = errors.New("sold out")

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		return errors.New("set DATABASE_URL, as by: export DATABASE_URL='postgres://postgres:secret@127.0.0.1:5432/postgres'")
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if endpoint := os.Getenv("ETCD_ENDPOINT"); endpoint != "" {
		return runWithEtcd(ctx, pool, endpoint)
	}

	g, err := fencekit.New(pool, nil) // your pgx pool; once: g.Migrate(ctx)
	if err != nil {
		return err
	}
	defer g.Close(ctx)

	return sellTwo(ctx, pool, g)
}

func runWithEtcd(ctx context.Context, pool *pgxpool.Pool, endpoint string) error {
	client, err := clientv3.New(etcd.ClientConfig(endpoint))
	if err != nil {
		return err
	}
	defer client.Close()

	locker, err := etcd.New(client, nil)
	if err != nil {
		return err
	}
	g, err := fencekit.New(pool, &fencekit.Config{Locker: locker}) // locks in your etcd
	if err != nil {
		return err
	}
	defer g.Close(ctx)

	return sellTwo(ctx, pool, g)
}

func sellTwo(ctx context.Context, pool *pgxpool.Pool, g *fencekit.Client) error {
	if err := g.Migrate(ctx); err != nil { // Fencekit's tables, once per database; or: fencectl migrate up
		return err
	}
	if _, err := pool.Exec(ctx, stock); err != nil {
		return err
	}

	return guard.Do(ctx, g, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
		return sell(ctx, tx, "42", 2) // no earlier holder can commit any more
	}, guard.OpName("sell"))
}

func sell(ctx context.Context, tx pgx.Tx, sku string, n int) error {
	var qty int
	if err := tx.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&qty); err != nil {
		return err
	}
	if qty < n {
		return errSoldOut
	}
	log.Printf("%d in stock, selling %d under token %d", qty, n, guard.Grants(ctx)[0].Token)
	_, err := tx.Exec(ctx, "update stock set qty = $2 where sku = $1", sku, qty-n)
	return err
}
