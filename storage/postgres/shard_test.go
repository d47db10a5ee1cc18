package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func setShard(t *testing.T, pool *pgxpool.Pool, shard postgres.Shard) error {
	t.Helper()
	return newStore(t, pool, &postgres.Config{Shard: shard}).SetShard(t.Context())
}

func TestShard_ClaimsForAnotherAreRejected(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	require.NoError(t, setShard(t, pool, postgres.Shard{Index: 1, Count: 4}))
	require.NoError(t, setShard(t, pool, postgres.Shard{Index: 1, Count: 4}), "again")
	right := newStore(t, pool, &postgres.Config{Shard: postgres.Shard{Index: 1, Count: 4}})
	require.NoError(t, right.Check(t.Context()))
	held := claim(t, right, grant(5, "a"))
	rejected := func(shard postgres.Shard, statement string) {
		t.Helper()
		store := newStore(t, pool, &postgres.Config{Shard: shard})
		for _, call := range []func() error{
			func() error { return store.Check(t.Context()) },
			func() error { _, err := store.Claim(t.Context(), storage.Claim{Grant: grant(6, "b")}); return err },
			func() error { return ownAttempt(t.Context(), store, set("x", 1)) },
		} {
			err := call()
			requireNotReady(t, err, postgres.OtherShard)
			require.ErrorContains(t, err, fmt.Sprintf("the caller expects shard %q", shard))
			require.ErrorContains(t, err, `run as the schema's owner: update "fence".setting set shard = `+statement)
			require.False(t, guard.SafeToRetry(err))
		}
	}
	rejected(postgres.Shard{Index: 1, Count: 2}, "'1 of 2, rule 1'")
	rejected(postgres.Shard{}, "null")

	mustExec(t, pool, `update "fence".setting set shard = '6 of 8, rule 1'; insert into fence.lock (resource) values ('sku/1')`)
	requireNotReady(t, ownAttempt(t.Context(), right, set("x", 1)), postgres.OtherShard)
	_, err := right.Claim(t.Context(), storage.Claim{Grant: grant(6, "b")})
	requireNotReady(t, err, postgres.OtherShard)
	require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, right), "nothing was recorded or moved")

	// Who has claimed goes on until another one claims, which moving the data does.
	held = write(t, right, held, set("x", 1))
	mover := newStore(t, pool, &postgres.Config{Shard: postgres.Shard{Index: 6, Count: 8}})
	claim(t, mover, grant(7, "c"))
	_, err = attempt(t.Context(), right, set("x", 2), held)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	holds(t, pool, "x", 1)
}

func TestShard_ClaimsOfResourcesElsewhereAreRejected(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, &postgres.Config{Shard: postgres.Shard{Index: 1, Count: 4}})
	require.NoError(t, store.SetShard(t.Context()))
	var here, elsewhere string
	for i := 0; here == "" || elsewhere == ""; i++ {
		if name := fmt.Sprintf("sku/%d", i); storage.ShardOf(name, 4) == 1 {
			here = name
		} else {
			elsewhere = name
		}
	}
	g, other := grantOf(here, 5), grantOf(elsewhere, 5)
	claim(t, store, g)
	for _, grants := range [][]fence.Grant{{other}, {g, other}} {
		g, err := guard.New(nil, store, nil)
		require.NoError(t, err)
		err = guard.Do(t.Context(), g.UnderGrant(grants...), elsewhere, func(context.Context, pgx.Tx) error { return nil })
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, elsewhere+" belongs to shard "+fmt.Sprint(storage.ShardOf(elsewhere, 4))+" of 4, and this is the store of shard 1")
		require.False(t, guard.SafeToRetry(err))
	}
	require.ErrorIs(t, ownAttempt(t.Context(), store, set("x", 1), unseen(here, elsewhere)...), fence.ErrInvalid)
	require.Equal(t, here, query[string](t, pool, "select string_agg(name, ' ') from fence.resource"))
}

const waitsForTheTable = "select count(*) = 1 from pg_locks where relation = 'fence.resource'::regclass and not granted and database = (select oid from pg_database where datname = current_database())"

// When a shard has been renamed, the list of fences is complete for processes with the old list of
// databases: what moves the data claims all of them.
func TestShard_RenameWaitsForClaimsUnderWay(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	require.NoError(t, setShard(t, pool, postgres.Shard{Index: 1, Count: 2}))
	for i, claim := range []string{
		"select fence.claim_one('sku/1', 1, 5, 'a', shard => $1)",
		"select fence.create_here('{736b752f31}', $1)",
		"select fence.claim_here('{736b752f31}', '{61}', $1, '{0}', '{0}')",
	} {
		shard := func(i int) string { return fmt.Sprintf("1 of %d, rule 1", 2<<i) }
		claiming := locked(t, pool, claim, shard(i))
		listed := background(func() (n int, err error) {
			if _, err := pool.Exec(t.Context(), "update fence.setting set shard = $1", shard(i+1)); err != nil {
				return 0, err
			}
			err = pool.QueryRow(t.Context(), "select count(*) from fence.resource where name = 'sku/1'").Scan(&n)
			return n, err
		})
		eventually(t, pool, waitsForTheTable)
		require.NoError(t, claiming.Commit(t.Context()))
		require.Equal(t, result[int]{value: 1}, receive(t, listed))
	}
}

func TestSetShard_NeedsADatabaseThatHoldsNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, &postgres.Config{Shard: postgres.Shard{Index: 1, Count: 4}})
	claiming := locked(t, pool, "select from fence.resource for no key update") // as a claim that makes the fence does first
	done := background(func() (bool, error) { return true, store.SetShard(t.Context()) })
	eventually(t, pool, waitsForTheTable)
	_, err := claiming.Exec(t.Context(), "select fence.create_fence('sku/1'); commit")
	require.NoError(t, err)
	requireNotReady(t, receive(t, done).err, postgres.OtherShard)
	mustExec(t, pool, `update "fence".setting set shard = '1 of 4, rule 1'`)
	require.NoError(t, setShard(t, pool, postgres.Shard{Index: 1, Count: 4}))

	r, shard := newRoles(t), postgres.Shard{Index: 1, Count: 4}
	requireNotReady(t, setShard(t, r.app, shard), postgres.OtherShard)
	require.NoError(t, setShard(t, r.admin, shard))
	require.NoError(t, setShard(t, r.app, shard))
	requireNotReady(t, setShard(t, r.admin, postgres.Shard{Index: 0, Count: 4}), postgres.OtherShard)
	claim(t, newStore(t, r.app, &postgres.Config{Shard: shard}), grant(5, "a"))
}

// The rule of storage.ShardOf, in SQL, as docs/sharding.md has it.
func TestShardOf_IsThatOfSQL(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	names := []string{"", "{", "{}", "}{", "a{}b{c}", "{a}{b}", "x{a}", "{{a}}", "{ä}", "ä"}
	for i := range 100 {
		names = append(names, fmt.Sprintf("sku/%d", i), fmt.Sprintf("{tenant-%d}/sku", i))
	}
	for _, name := range names {
		for _, n := range []int{1, 2, 5, 300} {
			require.Equal(t, storage.ShardOf(name, n), query[int](t, pool, `
				select i from generate_series(0, $2::int - 1) i
				 order by sha256(int4send(i) || convert_to(coalesce(substring($1::text from '^[^{]*\{([^}]+)\}'), $1::text), 'UTF8')) desc limit 1`, name, n), name)
		}
	}
}
