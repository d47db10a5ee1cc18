// Command shards sells from a stock that is spread over several databases: see
// docs/sharding.md. ETCD_ENDPOINT is the lock service, DATABASE_URLS names the databases,
// separated by spaces, in the same order for each process.
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func main() {
	ctx := context.Background()
	client, err := clientv3.New(etcd.ClientConfig(os.Getenv("ETCD_ENDPOINT")))
	if err == nil {
		defer client.Close()
		err = run(ctx, client, strings.Fields(os.Getenv("DATABASE_URLS")))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, client *clientv3.Client, urls []string) error {
	locker, err := etcd.New(client, nil) // one session in etcd serves all
	if err != nil {
		return err
	}
	defer locker.Close(ctx)
	shards := make([]*guard.Guard[pgx.Tx], len(urls))
	for i, url := range urls {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()
		store, err := postgres.NewStore(pool, &postgres.Config{Shard: postgres.Shard{Index: i, Count: len(urls)}})
		if err != nil {
			return err
		}
		if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
			return err
		}
		if err := store.SetShard(ctx); err != nil { // from now on the database says which shard it is
			return err
		}
		if shards[i], err = guard.New(locker, store, nil); err != nil {
			return err
		}
		defer shards[i].Close(ctx)
	}

	sku := "sku/42"
	on := shards[storage.ShardOf(sku, len(shards))]
	return guard.Do(ctx, on, sku, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update stock set qty = qty - 1 where sku = $1 and qty > 0", sku)
		return err
	}, guard.OpName("sell"))
}
