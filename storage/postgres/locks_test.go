package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A claim locks the fence exclusively: the state that it has read is still the same when it
// writes.
func TestClaim_IsAloneWithTheFence(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, &postgres.Config{StatementTimeout: time.Hour})
	impatient := newStore(t, pool, postgres.Config{}.With(postgres.Times{Lock: time.Millisecond}))
	claim(t, store, grant(5, "a"))
	for _, underWay := range []struct {
		token int
		meets error
	}{{5, nil}, {7, storage.ErrStaleToken}} {
		other := locked(t, pool, "select fence.claim_one($1, 1, $2, 'a')", resource, underWay.token)

		_, err := impatient.Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
		require.ErrorContains(t, err, "55P03")
		later := background(func() (storage.Claim, error) { return claimOne(context.Background(), store, grant(5, "a")) })
		waiting(t, pool, "transactionid")
		require.NoError(t, other.Commit(t.Context()))
		require.ErrorIs(t, (<-later).err, underWay.meets)
	}
}

// Seals of several fences lock them in one order, so that two transactions never deadlock.
func TestSeal_OppositeOrdersNeverDeadlock(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, &postgres.Config{StatementTimeout: time.Hour})
	other := grantOf("sku/2", 1)
	one, two := claim(t, store, grant(5, "a")), claim(t, store, other)
	upwards, downwards := begin(t, store, one, two), begin(t, store, two, one)
	require.NoError(t, upwards.Run(t.Context(), set("loser", 1)))
	require.NoError(t, downwards.Run(t.Context(), set("winner", 1)))
	last := locked(t, pool, "select from fence.resource where id = $1 for no key update", two.Resource)

	first := commit(downwards)
	waiting(t, pool, "transactionid")
	second := commit(upwards)
	eventually(t, pool, "select count(*) = 2 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	require.NoError(t, last.Rollback(t.Context()))
	require.NoError(t, (<-first).err)
	require.ErrorIs(t, (<-second).err, storage.ErrOvertaken)
	holds(t, pool, "winner", 1)
	holds(t, pool, "loser", 0)
}

// A claim of several locks existing fences in the order of their numbers, as seals do, whatever their names;
// and it creates missing fences before it locks any: what it waits for then never waits for it.
func TestClaim_OfSeveralLocksInTheSealsOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exist   []string // in the order of their numbers
		waitsOf string   // what another transaction does with b
	}{
		"existing": {[]string{"b", "a"}, "select from fence.resource where name = 'b' for no key update"},
		"missing":  {[]string{"a"}, "select fence.claim_one('b', 1, 5, 'x')"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, &postgres.Config{StatementTimeout: time.Hour})
			for _, resource := range c.exist {
				claim(t, store, grantOf(resource, 5))
			}
			other := locked(t, pool, c.waitsOf)
			claims := background(func() ([]storage.Claim, error) {
				return store.Claim(context.Background(), storage.Claim{Grant: grantOf("a", 6)}, storage.Claim{Grant: grantOf("b", 6)})
			})
			waiting(t, pool, "transactionid")
			mustExec(t, pool, "select from fence.resource where name = 'a' for update nowait")
			require.NoError(t, other.Commit(t.Context()))
			require.NoError(t, receive(t, claims).err)
		})
	}
}

// locked begins a transaction with sql.
func locked(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
	return tx
}

func grantOf(resource string, token fence.Token) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: "a"}
}
