package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// start starts an etcd and n servers, and returns how they are reached.
func start(t *testing.T, n int) (endpoint string, urls []string) {
	t.Helper()
	etcdServer, err := etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcdServer.Stop(context.Background())) })
	for range n {
		pg, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pg.Stop(context.Background())) })
		urls = append(urls, pg.DSN())
	}
	return etcdServer.Endpoint(), urls
}

func opened(t *testing.T, endpoint string, urls, retired []string) *shop {
	t.Helper()
	s, err := open(t.Context(), endpoint, urls, retired)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close(context.Background())) })
	return s
}

// stocked returns what is in stock in each database, and fails if a product is in two, in none, or in
// one that it doesn't belong to.
func stocked(t *testing.T, pools []*pgxpool.Pool) (qty []int) {
	t.Helper()
	skus := map[string]bool{}
	for shard, pool := range pools {
		rows, err := pool.Query(t.Context(), "select sku, qty from stock")
		require.NoError(t, err)
		var sku string
		var n, sum int
		_, err = pgx.ForEachRow(rows, []any{&sku, &n}, func() error {
			require.Equal(t, shard, guard.ShardOf(resource(sku), len(pools)), sku)
			require.False(t, skus[sku], sku)
			skus[sku] = true
			sum += n
			return nil
		})
		require.NoError(t, err)
		qty = append(qty, sum)
	}
	require.Len(t, skus, products)
	return qty
}

func sum(of []int) (sum int) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// Three servers become four: nothing is lost, processes with the list of before are rejected,
// and selling goes on with the new one.
func TestShards_FourServersAfterThree(t *testing.T) {
	endpoint, urls := start(t, 4)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "init", endpoint, urls[:3], nil, &out))
	before := opened(t, endpoint, urls[:3], nil)
	require.NoError(t, sell(t.Context(), before.shards, "7", 2))
	require.NoError(t, before.shards.Close(t.Context()))

	// The runbook of docs/guides/sharding.md.
	for i := range 3 {
		_, err := before.pools[i].Exec(t.Context(), fmt.Sprintf("update fence.setting set shard = '%d of 4, rule 1'", i))
		require.NoError(t, err)
	}
	late := opened(t, endpoint, urls[:3], nil)
	notReady := new(postgres.NotReadyError)
	require.ErrorAs(t, sell(t.Context(), late.shards, "7", 1), &notReady)
	require.Equal(t, postgres.OtherShard, notReady.Reason)

	after := opened(t, endpoint, urls, nil)
	require.NoError(t, after.shards.Migrate(t.Context()))
	_, err := after.pools[3].Exec(t.Context(), "create table stock (sku text primary key, qty int not null)")
	require.NoError(t, err)
	require.NoError(t, after.move(t.Context(), &out))
	require.Equal(t, "56 products moved\n", out.String(), "about a quarter")
	qty := stocked(t, after.pools)
	require.Equal(t, 100*products-2, sum(qty))

	out.Reset()
	require.NoError(t, run(t.Context(), "move", endpoint, urls, nil, &out))
	require.Equal(t, "0 products moved\n", out.String())
	require.NoError(t, run(t.Context(), "sell", endpoint, urls, nil, &out))
	t.Log(out.String())
	for shard, left := range stocked(t, after.pools) {
		require.Less(t, left, qty[shard], "shard %d", shard)
	}
	require.ErrorContains(t, run(t.Context(), "buy", endpoint, urls, nil, &out), "want init, sell or move")
}

// Holders that stood still since before the move are rejected, although their own database is the
// one that it was; also one that was about to make a new product. A move that was broken off half-way
// brings nothing back when it goes on.
func TestMove_AHolderOfBeforeIsRejected(t *testing.T) {
	endpoint, urls := start(t, 2)
	require.NoError(t, run(t.Context(), "init", endpoint, urls[:1], nil, &bytes.Buffer{}))
	before := opened(t, endpoint, urls[:1], nil)
	inspector, err := etcd.NewInspector(before.client, nil)
	require.NoError(t, err)
	sku, fresh := "0", "new"
	for i := 0; guard.ShardOf(resource(sku), 2) == 0; i++ {
		sku = fmt.Sprint(i)
	}
	for guard.ShardOf(resource(fresh), 2) == 0 {
		fresh += "er"
	}
	// standStill runs meanwhile in a holder's transaction, once it has lost its lock.
	standStill := func(sku, statement string, meanwhile func()) error {
		return guard.Do(t.Context(), before.shards, resource(sku), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select from stock where sku = $1", sku)
			require.NoError(t, err)
			_, err = inspector.Evict(t.Context(), resource(sku), guard.Grants(ctx)[0].Token, "it stands still", "test")
			require.NoError(t, err)
			meanwhile()
			_, err = tx.Exec(context.WithoutCancel(ctx), statement, sku)
			return err
		})
	}
	var after *shop
	err = standStill(sku, "insert into stock values ($1, 99)", func() {
		err := standStill(fresh, "insert into stock values ($1, 99)", func() {
			_, err := before.pools[0].Exec(t.Context(), "update fence.setting set shard = '0 of 2, rule 1'")
			require.NoError(t, err)
			after = opened(t, endpoint, urls, nil)
			require.NoError(t, after.shards.Migrate(t.Context()))
			_, err = after.pools[1].Exec(t.Context(), "create table stock (sku text primary key, qty int not null)")
			require.NoError(t, err)
			require.NoError(t, after.move(t.Context(), &bytes.Buffer{}))
		})
		require.ErrorIs(t, err, guard.ErrStaleToken)
	})
	require.ErrorIs(t, err, guard.ErrStaleToken)
	require.Equal(t, 100*products, sum(stocked(t, after.pools)))

	var fenced bool
	require.NoError(t, after.pools[1].QueryRow(t.Context(), "select exists (select from fence.resource where name = $1)", resource(fresh)).Scan(&fenced))
	require.True(t, fenced, "the move claims in both databases, whatever is there")

	// As if the move had been broken off before it deleted the product.
	_, err = after.pools[0].Exec(t.Context(), "insert into stock values ($1, 100)", sku)
	require.NoError(t, err)
	require.NoError(t, after.move(t.Context(), &bytes.Buffer{}))
	require.Equal(t, 100*products, sum(stocked(t, after.pools)))

	// And as if the product had been sold since, which the runbook forbids.
	_, err = after.pools[0].Exec(t.Context(), "insert into stock values ($1, 100)", sku)
	require.NoError(t, err)
	require.NoError(t, sell(t.Context(), after.shards, sku, 3))
	require.ErrorContains(t, after.move(t.Context(), &bytes.Buffer{}), "it is in two databases: 97 in the one that it belongs to, 100 in the other")
}

// A move is broken off between "move in" and "move out" of a product. Going back leaves nothing in the
// database that was to be new, so nothing of it comes back when the move is tried again.
func TestMove_GoingBackLeavesNothingBehind(t *testing.T) {
	endpoint, urls := start(t, 2)
	require.NoError(t, run(t.Context(), "init", endpoint, urls[:1], nil, &bytes.Buffer{}))
	before := opened(t, endpoint, urls[:1], urls[1:])
	exec := func(pool *pgxpool.Pool, sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	var sku string
	moving := slices.DeleteFunc(skus(), func(sku string) bool { return guard.ShardOf(resource(sku), 2) == 0 })
	require.NoError(t, before.pools[0].QueryRow(t.Context(), "select sku from stock where sku = any ($1) order by sku offset 3 limit 1", moving).Scan(&sku))
	exec(before.pools[0], `create function broken() returns trigger language plpgsql as 'begin raise exception ''broken off''; end';
		create trigger broken before delete on stock for each row when (old.sku = '`+sku+`') execute function broken()`)
	after := opened(t, endpoint, urls, nil)
	exec(before.pools[0], "update fence.setting set shard = '0 of 2, rule 1'")
	require.NoError(t, after.shards.Migrate(t.Context()))
	exec(after.pools[1], "create table stock (sku text primary key, qty int not null)")
	require.ErrorContains(t, after.move(t.Context(), &bytes.Buffer{}), "broken off")

	// Back, as docs/guides/sharding.md says.
	exec(before.pools[0], "update fence.setting set shard = '0 of 1, rule 1'")
	exec(before.retired[0], "update fence.setting set shard = 'retired'")
	var out bytes.Buffer
	require.NoError(t, before.move(t.Context(), &out))
	require.Equal(t, "4 products moved\n", out.String(), "three that had been moved, and the one that was in both")
	require.Equal(t, []int{100 * products}, stocked(t, before.pools))
	require.NoError(t, sell(t.Context(), before.shards, sku, 40))
	require.NoError(t, before.shards.Close(t.Context()))

	// The next try.
	exec(before.pools[0], "drop trigger broken on stock; update fence.setting set shard = '0 of 2, rule 1'")
	exec(after.pools[1], "update fence.setting set shard = '1 of 2, rule 1'")
	require.NoError(t, after.move(t.Context(), &bytes.Buffer{}))
	require.Equal(t, 100*products-40, sum(stocked(t, after.pools)))
	var left int
	require.NoError(t, after.pools[1].QueryRow(t.Context(), "select qty from stock where sku = $1", sku).Scan(&left))
	require.Equal(t, 60, left)
}

func skus() (all []string) {
	for i := range products {
		all = append(all, fmt.Sprint(i))
	}
	return all
}
