package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/epoch"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

const (
	jump   = 1 << 40     // how far above the mark a token may be
	stride = jump / 1024 // how far above it one may be without raising it
)

func epochGrant(epoch int64, token fence.Token) fence.Grant {
	g := grant(token, fmt.Sprintf("h%d-%d", epoch, token))
	g.Epoch = epoch
	return g
}

// A token or an epoch that would lock all other holders out is rejected, recorded, and
// changes nothing; the owner of the schema can admit it.
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

			if absurd.Epoch > 11 {
				_, err := epoch.Raise{Epoch: absurd.Epoch, Reason: "it is right", Operator: "me"}.Apply(t.Context(), pool, postgres.DefaultSchema, false)
				require.NoError(t, err)
			} else {
				mustExec(t, pool, sql)
			}
			claim(t, store, absurd)
		})
	}
}

// A grant of an earlier epoch is behind, whatever its token; and no hint, nor an update by
// hand, takes an epoch back.
func TestClaim_EpochBehindComesBeforeAnAbsurdToken(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	claim(t, store, epochGrant(2, 7))
	_, err := store.Claim(t.Context(), storage.Claim{Grant: epochGrant(1, jump+8)})
	requireRejected(t, err, storage.ReasonEpochBehind)
	require.ErrorContains(t, err, "says that etcd has 2 or more by now, acquire anew; else raise it: fencectl epoch bump --reason TEXT")
	for _, role := range []string{"origin", "replica"} {
		_, err = pool.Exec(t.Context(), "set session_replication_role = "+role+"; update fence.setting set epoch = 1")
		require.ErrorContains(t, err, "an epoch is never taken back (SQLSTATE ZF009)", role)
	}
	mustExec(t, pool, "update fence.setting set epoch = 3, token = 9, max_epoch_jump = 5")
	require.Equal(t, 3, query[int](t, pool, "select epoch from fence.setting"))
}

// Tokens that rise step by step, as a lock service issues them, are within bounds, however
// high they get.
func TestClaim_TheMarkFollowsTheTokens(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	token := fence.Token(1790000000000000) // the first may be any
	claim(t, store, epochGrant(1, token))
	for range 5 {
		token += jump
		claim(t, store, epochGrant(1, token))
		require.EqualValues(t, token, query[int64](t, pool, "select token from fence.setting"))
	}
	_, err := store.Claim(t.Context(), storage.Claim{Grant: epochGrant(1, token+jump+1)})
	requireRejected(t, err, storage.ReasonTokenJump)
	mustExec(t, pool, "update fence.setting set max_token_jump = 2 * max_token_jump")
	claim(t, store, epochGrant(1, token+jump+1))

	// Another epoch begins with a mark of its own.
	claim(t, store, epochGrant(11, 5))
	require.Equal(t, "11 5", query[string](t, pool, "select epoch || ' ' || token from fence.setting"))
	_, err = store.Claim(t.Context(), storage.Claim{Grant: epochGrant(11, 5+2*jump+1)})
	requireRejected(t, err, storage.ReasonTokenJump)
}

// A claim that raises the mark and then waits for a fence doesn't delay other claims.
func TestClaim_NeverWaitsForTheMarks(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, postgres.Config{}.With(postgres.Times{Lock: 1e6}))
	raising := locked(t, pool, "select fence.claim_one('sku/2', 1, $1, 'a')", int64(3*stride))
	require.Positive(t, query[int64](t, raising, "select token from fence.setting"))
	claim(t, store, epochGrant(1, 4*stride))
	require.Zero(t, query[int64](t, pool, "select token from fence.setting"))
}

// Claims that raise marks and epochs at once, over the same few resources, never deadlock.
func TestClaim_MarksNeverDeadlock(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, &postgres.Config{StatementTimeout: time.Hour})
	var wg sync.WaitGroup
	failures := make(chan error, 8*40)
	for w := range 8 {
		wg.Go(func() {
			for i := range 40 {
				g := epochGrant(int64(1+i/10), fence.Token((i*8+w+1)*2*stride))
				g.Resource = fmt.Sprintf("sku/%d", rand.IntN(3))
				_, err := store.Claim(t.Context(), storage.Claim{Grant: g})
				rejected := new(storage.RejectedError)
				errors.As(err, &rejected)
				if err != nil && rejected.Reason != storage.ReasonStale && rejected.Reason != storage.ReasonEpochBehind {
					failures <- err
				}
			}
		})
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	require.Equal(t, 4, query[int](t, pool, "select epoch from fence.setting"))
}

// Two schemas of one database don't end each other's transactions, though both
// have a first resource, and its first token.
func TestEvict_SparesOtherSchemas(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	_, err := postgres.Migrate(t.Context(), pool, "other")
	require.NoError(t, err)
	cfg := patient()
	cfg.Schema = "other"
	one, other := newStore(t, pool, patient()), newStore(t, pool, cfg)
	c := claim(t, other, grant(5, "a"))
	txn := begin(t, other, c)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	first := claim(t, one, grant(5, "a"))
	claim(t, one, grant(6, "b"))
	_, err = txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.NotEqual(t, first.Resource, c.Resource)
	require.Greater(t, c.Resource, int64(1_000_000), "apart from an application's small keys")
}
