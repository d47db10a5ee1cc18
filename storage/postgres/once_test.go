package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// counting increments x and returns what it is then.
func counting(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	if err := add("x", 1)(ctx, tx); err != nil {
		return 0, err
	}
	return n, get("x", &n)(ctx, tx)
}

// recalling is a store that calls before ahead of Recall.
type recalling struct {
	storage.Store[pgx.Tx]
	before func()
}

func (s *recalling) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) ([]byte, bool, error) {
	s.before()
	return s.Store.Recall(ctx, key, claims...)
}

// A repeated call gets no answer from a grant that was superseded after its claim.
func TestOnce_RepeatedAnswerIsNotASupersededGrants(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := &recalling{Store: newStore(t, pool, nil), before: func() {}}
	receiver, err := guard.New(nil, storage.Store[pgx.Tx](store), nil)
	require.NoError(t, err)
	call := func(token fence.Token, holder string) (int64, error) {
		return guard.Value(t.Context(), receiver.UnderGrant(grant(token, holder)), resource, counting, guard.Once("k", nil))
	}
	_, err = call(5, "a")
	require.NoError(t, err)
	store.before = func() {
		store.before = func() {}
		n, err := call(6, "b")
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	_, err = call(5, "a")
	var rejected *storage.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, storage.ReasonStale, rejected.Reason)
	require.NoError(t, rejected.RecordErr)
	require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindClaim}, kinds(t, store.Store.(*postgres.Store)))
	holds(t, pool, "x", 1)
}

// A key that no standby has is not answered: from the position that was acknowledged the fence has
// moved on, and its new position is acknowledged once a standby has it.
func TestRecall_AnswersNothingThatNoStandbyHas(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, alone)
	store := newStore(t, openPool(t, dsn), nil)
	standby := standby{t, openPool(t, dsn)}
	key := storage.OnceKey{Key: "k"}
	acknowledged := claim(t, store, grant(5, "a"))
	txn := begin(t, store, acknowledged)
	standby.lose()
	commit := background(func() ([]storage.Claim, error) { return txn.Commit(context.Background(), keeping(key, []byte("1"))) })
	standby.signal("cancel")
	require.ErrorAs(t, (<-commit).err, new(*storage.InDoubtError))
	require.Equal(t, 1, query[int](t, standby.pool, "select count(*) from fence.operation"))

	recalled := background(func() (bool, error) {
		_, found, err := store.Recall(context.Background(), key, acknowledged)
		return found, err
	})
	standby.signal("cancel") // the record of the rejection
	answer := <-recalled
	require.ErrorIs(t, answer.err, storage.ErrOvertaken)
	require.False(t, answer.value)

	again := background(func() (storage.Claim, error) { return claimOne(context.Background(), store, grant(5, "a")) })
	waiting(t, standby.pool, "SyncRep")
	require.Empty(t, again)
	standby.regain()
	present := <-again
	require.NoError(t, present.err)
	result, found, err := store.Recall(t.Context(), key, present.value)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "1", string(result))
}

// A key is kept only by a seal, for a resource whose fence it moves: otherwise other
// transactions would not notice it. So a transaction of one resource can't make an operation
// on another one count as done.
func TestKeep_WithoutItsMoveIsRejected(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	other := grantOf("sku/2", 5)
	c, o := claim(t, store, grant(5, "a")), claim(t, store, other)
	keeping := func(c storage.Claim, kept string) string {
		return beginCheckCall(c) + "; " + sealKeeping(c, 77, kept)
	}
	zeros := strings.Repeat("00", 32)
	for name, kept := range map[string]string{
		"another resource":      fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{31}'", o.Resource, zeros),
		"another one beside it": fmt.Sprintf("'{%d,%d}', '{6b,6b}', '{%s,%s}', '{31,31}'", c.Resource, o.Resource, zeros, zeros),
		"a null resource":       fmt.Sprintf("'{null}', '{6b}', '{%s}', '{31}'", zeros),
		"null":                  fmt.Sprintf("null, '{6b}', '{%s}', '{31}'", zeros),
		"no keys":               fmt.Sprintf("'{%d}', '{}', '{%s}', '{31}'", c.Resource, zeros),
		"no requests":           fmt.Sprintf("'{%d}', '{6b}', '{}', '{31}'", c.Resource),
		"no results":            fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{}'", c.Resource, zeros),
		"null results":          fmt.Sprintf("'{%d}', '{6b}', '{%s}', null", c.Resource, zeros),
	} {
		require.ErrorContains(t, inOne(t, r.app, keeping(c, kept)), "(SQLSTATE ZF007)", name)
	}
	require.ErrorContains(t, inOne(t, r.app, keeping(c, fmt.Sprintf("'{%d}', '{6b}', '{00}', '{31}'", c.Resource))), "operation_request")
	moved := c
	moved.Seq++
	require.ErrorContains(t, inOne(t, r.app, keeping(moved, fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{31}'", c.Resource, zeros))), "(SQLSTATE ZF004)")
	require.Zero(t, query[int](t, r.admin, "select count(*) from fence.operation"))
	require.NoError(t, inOne(t, r.app, keeping(c, fmt.Sprintf("'{%d}', '{6b}', '{%s}', '{31}'", c.Resource, zeros))))
	require.Equal(t, 1, query[int](t, r.admin, "select count(*) from fence.operation"))
}

func TestPrune_KeepsOnceKeysForAsLongAsThePolicySays(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	pruned, err := store.Prune(t.Context())
	require.NoError(t, err)
	require.Zero(t, pruned)
	mustExec(t, pool, `insert into fence.operation (resource, key, request, tx, at)
		select 1, 'k' || i, decode(repeat('00', 32), 'hex'), 1, now() - case when i <= 3500 then interval '7 days 1 hour' else interval '6 days 23 hours' end
		from generate_series(1, 3600) i`)
	owner := func(want int64, r postgres.PruneOptions) {
		t.Helper()
		pruned, err := postgres.Prune(t.Context(), pool, "", r)
		require.NoError(t, err)
		require.Equal(t, postgres.Pruned{OnceKeys: want}, pruned)
	}
	owner(0, postgres.PruneOptions{DryRun: true}) // the clock hasn't gone steadily for as long
	steadyFor(t, pool, "8 days")
	owner(3500, postgres.PruneOptions{DryRun: true})
	owner(0, postgres.PruneOptions{Resources: "*"})
	pruned, err = store.Prune(t.Context())
	require.NoError(t, err)
	require.Equal(t, postgres.Pruned{OnceKeys: 3500}, pruned)
	mustExec(t, pool, "update fence.setting set once_retention = '1 day'")
	owner(100, postgres.PruneOptions{Keep: 1000 * time.Hour})
	_, err = pool.Exec(t.Context(), "update fence.setting set once_retention = '1 second'")
	require.Error(t, err, "a retry must have a chance to come in time")
	setForward(t, pool, "10 days")
	_, err = postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{})
	requireNotReady(t, err, postgres.ClockJumped)
}
