package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

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

// An own claim that waits for one fence would hold up the seals of another's owner.
func TestBeginOwn_HoldsNoOwnersFence(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, &postgres.Config{StatementTimeout: time.Hour})
	impatient := newStore(t, openPool(t, pool.Config().ConnString(), unnamed), postgres.Config{}.With(postgres.Times{Lock: time.Millisecond}))
	var seen []storage.Claim
	for _, name := range []string{"sku/1", "sku/2"} {
		claim(t, store, grantOf(name, 1))
		mustExec(t, pool, "insert into fence.lock (resource) values ($1)", name)
		seen = append(seen, storage.Claim{Grant: fence.Grant{Resource: name, Holder: "b"}})
	}
	running, _, err := store.BeginOwn(t.Context(), ownLimit, seen[1])
	require.NoError(t, err)
	defer running.Rollback(context.Background())
	mustExec(t, pool, "select fence.lock_open(7, '61', 3600000)")
	mustExec(t, pool, "select fence.lock_acquire(7, 1, '{736b752f31}', '{61}', '', true)")
	_, _, err = impatient.BeginOwn(t.Context(), ownLimit, seen...)
	require.Same(t, storage.ErrHeld, err)
}

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

const (
	jump   = 1 << 40     // how far above the mark a token may be
	stride = jump / 1024 // how far above it one may be without raising it
)

func epochGrant(epoch int64, token fence.Token) fence.Grant {
	g := grant(token, fmt.Sprintf("h%d-%d", epoch, token))
	g.Epoch = epoch
	return g
}

func TestClaim_AbsurdTokenIsRejected(t *testing.T) {
	t.Parallel()
	for name, absurd := range map[string]fence.Grant{
		"token": epochGrant(1, jump+8),
		"epoch": epochGrant(12, 1),
		"both":  epochGrant(12, jump+8),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			c := claim(t, store, epochGrant(1, 7))
			setting := query[string](t, pool, "select s::text from fence.setting s")
			_, err := claimOne(t.Context(), store, absurd)
			require.EqualValues(t, 1, requireRejected(t, err, storage.ReasonTokenJump).Current.Epoch)
			require.ErrorContains(t, err, "is implausibly far above the database's mark (")
			_, sql, _ := strings.Cut(err.Error(), "the owner of the schema runs: ")
			rejections := recorded(t, store)
			require.Len(t, rejections, 1)
			require.Equal(t, storage.ReasonTokenJump, rejections[0].Reason)
			require.Equal(t, absurd, rejections[0].Grant)
			require.Equal(t, setting, query[string](t, pool, "select s::text from fence.setting s"))
			write(t, store, c, set("x", 1))
			claim(t, store, epochGrant(1, 8))

			if name == "token" { // for epochs see package epoch
				mustExec(t, pool, sql)
				claim(t, store, absurd)
			}
		})
	}
}

func TestClaim_EpochBehindComesBeforeAnAbsurdToken(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	claim(t, store, epochGrant(2, 7))
	_, err := store.Claim(t.Context(), storage.Claim{Grant: epochGrant(1, jump+8)})
	requireRejected(t, err, storage.ReasonEpochBehind)
	require.ErrorContains(t, err, "set the lock service's epoch to 2")
	for _, role := range []string{"origin", "replica"} {
		_, err = pool.Exec(t.Context(), "set session_replication_role = "+role+"; update fence.setting set epoch = 1")
		require.ErrorContains(t, err, "an epoch is never taken back (SQLSTATE ZF009)", role)
	}
	mustExec(t, pool, "update fence.setting set epoch = 3, token = 9, max_epoch_jump = 5")
	require.Equal(t, 3, query[int](t, pool, "select epoch from fence.setting"))
}

func TestClaim_NeverWaitsForTheMarks(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, postgres.Config{}.With(postgres.Times{Lock: 1e6}))
	raising := locked(t, pool, "select fence.claim_one('sku/2', 1, $1, 'a')", int64(3*stride))
	require.Positive(t, query[int64](t, raising, "select token from fence.setting"))
	claim(t, store, epochGrant(1, 4*stride))
	require.Zero(t, query[int64](t, pool, "select token from fence.setting"))
}

func TestResolve_RecordsTheRejectionWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted)
	d := f.doubt(t, claim(t, f.store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		defer claimOnly(t, f.pool, grant(6, "b"))
		return set("x", 1)(ctx, tx)
	}), pgproxy.SwallowReply())
	require.False(t, applied(t, f.store, d))
	rejections := recorded(t, f.store)
	require.Len(t, rejections, 1)
	require.Equal(t, storage.ReasonStale, rejections[0].Reason)
	require.Equal(t, grant(5, "a"), rejections[0].Grant)
	require.Equal(t, grant(6, "b"), rejections[0].Current)
}

// A claim that fails at the mark moves no fence, and takes no other's place.
func TestClaim_ThatFailsAtTheMarkLeavesTheOthersTheirs(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	of := func(resource string, epoch int64, token fence.Token) storage.Claim {
		return storage.Claim{Grant: fence.Grant{Resource: resource, Epoch: epoch, Token: token, Holder: "of " + resource}}
	}
	_, err := store.Claim(t.Context(), of("z", 2, 5))
	require.NoError(t, err)
	for reason, seen := range map[storage.Reason][]storage.Claim{
		storage.ReasonEpochBehind: {of("a", 1, 500), of("b", 2, 7)},
		storage.ReasonTokenJump:   {of("c", 2, 1<<60), of("d", 2, 8)},
	} {
		claims, err := store.Claim(t.Context(), seen...)
		requireRejected(t, err, reason)
		require.Zero(t, claims[0], reason)
		require.Equal(t, seen[1].Grant, claims[1].Grant, reason)
		require.Equal(t, fmt.Sprint(claims[1].Resource, " 2 ", seen[1].Grant.Token, " of ", seen[1].Grant.Resource),
			query[string](t, pool, "select concat_ws(' ', id, epoch, token, holder) from fence.resource where name = $1", seen[1].Grant.Resource), reason)
		_, err = store.Claim(t.Context(), of(seen[1].Grant.Resource, 2, seen[1].Grant.Token+1))
		require.NoError(t, err)
	}
}
