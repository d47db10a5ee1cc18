package fencekit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// newShards returns Shards whose keys in etcd are the test's own.
func newShards(t *testing.T, cfg fencekit.Config, pools ...*pgxpool.Pool) *fencekit.Shards {
	t.Helper()
	cfg.Lock.Prefix = t.Name()
	s, err := fencekit.NewShards(etcdserver.Client(t), pools, &cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ended)
	})
	return s
}

func TestShards_EachHasItsOwnData(t *testing.T) {
	t.Parallel()
	pools := []*pgxpool.Pool{emptyPool(t), emptyPool(t), emptyPool(t)}
	s := newShards(t, fencekit.Config{Store: postgres.Config{Schema: "shop"}}, pools...)
	requireNotReady(t, s.Check(t.Context()), postgres.NotMigrated)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Migrate(t.Context()), "again")
	require.NoError(t, s.Check(t.Context()))
	for i := range 10 {
		require.NoError(t, guard.Do(t.Context(), s, fmt.Sprintf("sku/%d", i), nothing))
	}
	for shard, pool := range pools {
		rows, err := pool.Query(t.Context(), "select name from shop.resource")
		require.NoError(t, err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			require.Equal(t, shard, guard.ShardOf(name, 3), name)
		}
	}
	across := new(guard.AcrossShardsError)
	require.ErrorAs(t, guard.Do(t.Context(), s, []string{"sku/0", "sku/1", "sku/2", "sku/3", "sku/4"}, nothing), &across)
	require.NoError(t, s.Close(t.Context()))
	require.ErrorIs(t, guard.Do(t.Context(), s, "sku/0", nothing), guard.ErrClosed)
	require.ErrorIs(t, s.Locker.Check(t.Context()), guard.ErrClosed)
}

// Processes that have the databases in another order, another number of them, or one of them
// alone, can't claim in them.
func TestShards_AnotherListIsRejected(t *testing.T) {
	t.Parallel()
	a, b := emptyPool(t), emptyPool(t)
	require.NoError(t, newShards(t, fencekit.Config{}, a, b).Migrate(t.Context()))
	alone, _ := newGuard(t, etcdserver.Client(t), a, fencekit.Config{})
	requireNotReady(t, guard.Do(t.Context(), alone, "sku/1", nothing), postgres.OtherShard)
	requireNotReady(t, alone.Check(t.Context()), postgres.OtherShard)
	for _, list := range [][]*pgxpool.Pool{{b, a}, {a, b, emptyPool(t)}, {a}} {
		s := newShards(t, fencekit.Config{}, list...)
		requireNotReady(t, s.Migrate(t.Context()), postgres.OtherShard)
		requireNotReady(t, s.Check(t.Context()), postgres.OtherShard)
	}
	s := newShards(t, fencekit.Config{}, b, a)
	requireNotReady(t, guard.Do(t.Context(), s, "sku/1", nothing), postgres.OtherShard)
}

// Grants that came with a request run on their own shard, and make no fence in another one.
func TestShards_UnderGrantMakesFencesInTheirShard(t *testing.T) {
	t.Parallel()
	pools := []*pgxpool.Pool{emptyPool(t), emptyPool(t)}
	s := newShards(t, fencekit.Config{}, pools...)
	require.NoError(t, s.Migrate(t.Context()))
	var grants [2]fence.Grant
	for i := 0; grants[0].Resource == "" || grants[1].Resource == ""; i++ {
		name := fmt.Sprintf("sku/%d", i)
		lease, err := s.Locker.Acquire(t.Context(), name)
		require.NoError(t, err)
		grants[guard.ShardOf(name, 2)] = lease.Grant()
	}
	across := new(guard.AcrossShardsError)
	require.ErrorAs(t, guard.Do(t.Context(), s.UnderGrant(grants[:]...), grants[0].Resource, nothing), &across)
	for i, pool := range pools {
		require.NoError(t, guard.Do(t.Context(), s.UnderGrant(grants[i]), grants[i].Resource, nothing))
		rows, err := pool.Query(t.Context(), "select name from fence.resource")
		require.NoError(t, err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Equal(t, []string{grants[i].Resource}, names)
	}
}

// A database that can't be reached takes only its own resources away.
func TestShards_OneIsAway(t *testing.T) {
	t.Parallel()
	away, _ := awayPool(t)
	s := newShards(t, fencekit.Config{}, migratedPool(t), away)
	require.ErrorContains(t, s.Migrate(t.Context()), "shard 1: ")
	require.ErrorContains(t, s.Check(t.Context()), "shard 1: ")
	ran := map[int]bool{}
	for i := range 8 {
		name := fmt.Sprintf("sku/%d", i)
		shard := guard.ShardOf(name, 2)
		ran[shard] = true
		err := guard.Do(t.Context(), s, name, nothing)
		if shard == 1 {
			require.ErrorIs(t, err, guard.ErrStoreUnavailable)
		} else {
			require.NoError(t, err)
		}
	}
	require.Len(t, ran, 2)
}

func TestNewShards_RejectsWhatCannotWork(t *testing.T) {
	t.Parallel()
	client, pool := etcdserver.Client(t), emptyPool(t)
	for _, c := range []struct {
		pools []*pgxpool.Pool
		cfg   fencekit.Config
	}{
		{nil, fencekit.Config{}},
		{[]*pgxpool.Pool{pool, nil}, fencekit.Config{}},
		{[]*pgxpool.Pool{pool, pool}, fencekit.Config{}},
		{[]*pgxpool.Pool{pool}, fencekit.Config{PruneEvery: 1}},
		{[]*pgxpool.Pool{pool}, fencekit.Config{Store: postgres.Config{Shard: "mine"}}},
	} {
		_, err := fencekit.NewShards(client, c.pools, &c.cfg)
		require.ErrorIs(t, err, guard.ErrInvalid)
	}
	_, err := fencekit.NewShards(nil, []*pgxpool.Pool{pool}, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	for _, none := range []*fencekit.Shards{nil, {}} {
		for _, call := range []func(context.Context) error{none.Migrate, none.Check, none.Close} {
			require.ErrorIs(t, call(t.Context()), guard.ErrInvalid)
		}
	}
	require.ErrorIs(t, guard.Do(t.Context(), &fencekit.Shards{}, "a", nothing), guard.ErrInvalid)
	require.ErrorIs(t, (&fencekit.Guard{}).Close(t.Context()), guard.ErrInvalid)
}

func TestShards_CloseInAFunctionClosesNothing(t *testing.T) {
	t.Parallel()
	s := newShards(t, fencekit.Config{}, emptyPool(t), emptyPool(t))
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, guard.Do(t.Context(), s, "sku/1", func(ctx context.Context, _ pgx.Tx) error {
		require.ErrorIs(t, s.Close(ctx), guard.ErrInvalid)
		return nil
	}))
	require.NoError(t, guard.Do(t.Context(), s, "sku/1", nothing))
}
