// Command shards sells from a stock that is spread over several databases, and moves it when
// there are more of them than before: see docs/guides/sharding.md. ETCD_ENDPOINT is the lock service,
// DATABASE_URLS names the databases, separated by spaces, in the same order for each process;
// RETIRED_URLS those that have been among them, for move.
//
//	go run ./examples/shards init   # tables, and 200 products with 100 pieces each
//	go run ./examples/shards sell   # for 5 s, on 8 goroutines for each database
//	go run ./examples/shards move   # what is in another database than it belongs to
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
)

const products = 200

func main() {
	command := strings.Join(os.Args[1:], " ")
	urls, retired := strings.Fields(os.Getenv("DATABASE_URLS")), strings.Fields(os.Getenv("RETIRED_URLS"))
	if err := run(context.Background(), command, os.Getenv("ETCD_ENDPOINT"), urls, retired, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command, endpoint string, urls, retired []string, out io.Writer) (err error) {
	shop, err := open(ctx, endpoint, urls, retired)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close(ctx)) }()
	switch command {
	case "init":
		return shop.init(ctx)
	case "sell":
		return shop.sellFor(ctx, 5*time.Second, out)
	case "move":
		return shop.move(ctx, out)
	}
	return fmt.Errorf("command %q, want init, sell or move", command)
}

// shop is a stock in several databases.
type shop struct {
	client  *clientv3.Client
	pools   []*pgxpool.Pool
	retired []*pgxpool.Pool // have no part of the stock any more, once it has been moved
	shards  *fencekit.Shards
}

func open(ctx context.Context, endpoint string, urls, retired []string) (*shop, error) {
	client, err := clientv3.New(etcd.ClientConfig(endpoint))
	if err != nil {
		return nil, err
	}
	s := &shop{client: client}
	for i, url := range slices.Concat(urls, retired) {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
		if i < len(urls) {
			s.pools = append(s.pools, pool)
		} else {
			s.retired = append(s.retired, pool)
		}
	}
	if s.shards, err = fencekit.NewShards(client, s.pools, nil); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *shop) close(ctx context.Context) error {
	var err error
	if s.shards != nil {
		err = s.shards.Close(ctx)
	}
	for _, pool := range slices.Concat(s.pools, s.retired) {
		pool.Close()
	}
	return errors.Join(err, s.client.Close())
}

// resource is the lock of a product. Its row is in the database that the resource belongs to.
func resource(sku string) string { return "sku/" + sku }

// init makes the tables, and puts each product into the database that it belongs to.
func (s *shop) init(ctx context.Context) error {
	if err := s.shards.Migrate(ctx); err != nil {
		return err
	}
	skus := make([][]string, len(s.pools))
	for i := range products {
		sku := fmt.Sprint(i)
		shard := guard.ShardOf(resource(sku), len(s.pools))
		skus[shard] = append(skus[shard], sku)
	}
	for i, pool := range s.pools {
		if _, err := pool.Exec(ctx, "create table if not exists stock (sku text primary key, qty int not null check (qty >= 0))"); err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "insert into stock select unnest($1::text[]), 100 on conflict do nothing", skus[i]); err != nil {
			return err
		}
	}
	return nil
}

var errSoldOut = errors.New("sold out")

// sell takes any fencekit.Runner: it need not know that there are several databases.
func sell(ctx context.Context, g fencekit.Runner, sku string, n int) error {
	return guard.Do(ctx, g, resource(sku), func(ctx context.Context, tx pgx.Tx) error {
		var qty int
		if err := tx.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&qty); err != nil {
			return err
		}
		if qty < n {
			return errSoldOut
		}
		_, err := tx.Exec(ctx, "update stock set qty = $2 where sku = $1", sku, qty-n)
		return err
	}, guard.Name("sell"), guard.Retryable())
}

// sellFor sells products at random, and says how many sales each database has had.
func (s *shop) sellFor(ctx context.Context, d time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	sales := make([]atomic.Int64, len(s.pools))
	var failed atomic.Pointer[error]
	var sellers sync.WaitGroup
	for range 8 * len(s.pools) {
		sellers.Go(func() {
			for ctx.Err() == nil {
				sku := fmt.Sprint(rand.IntN(products))
				switch err := sell(ctx, s.shards, sku, 1); {
				case err == nil:
					sales[guard.ShardOf(resource(sku), len(s.pools))].Add(1)
				case errors.Is(err, errSoldOut) || ctx.Err() != nil:
				default:
					failed.Store(&err)
					cancel()
				}
			}
		})
	}
	sellers.Wait()
	var sum int64
	for i := range sales {
		n := sales[i].Load()
		sum += n
		fmt.Fprintf(out, "shard %d of %d: %d sold\n", i, len(sales), n)
	}
	fmt.Fprintf(out, "%.0f sales a second\n", float64(sum)/d.Seconds())
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
