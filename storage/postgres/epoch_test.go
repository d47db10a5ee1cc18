package postgres_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func raised(epoch int64) postgres.EpochRaise {
	return postgres.EpochRaise{Epoch: epoch, Token: 40, Reason: "etcd was restored", Operator: "me@here"}
}

// raise raises the epoch as the owner.
func raise(t testing.TB, r roles, to int64) {
	t.Helper()
	done, err := postgres.RaiseEpoch(t.Context(), r.admin, "", raised(to), false)
	require.NoError(t, err)
	require.True(t, done)
}

func readEpoch(t testing.TB, r roles) postgres.Epoch {
	t.Helper()
	e, err := postgres.ReadEpoch(t.Context(), r.reader, "")
	require.NoError(t, err)
	return e
}

// Claims of earlier epochs are rejected from the raise on, and those of the new one are not,
// whatever their tokens. The raise is recorded for good.
func TestRaiseEpoch_EndsEarlierEpochs_N20_HD5(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	require.Equal(t, postgres.Epoch{Number: 1, MaxJump: 10}, readEpoch(t, r))
	old := write(t, store, claim(t, store, grant(50, "a")), set("x", 1))
	require.Equal(t, postgres.Epoch{Number: 1, MaxJump: 10, Highest: old.Grant}, readEpoch(t, r))

	done, err := postgres.RaiseEpoch(t.Context(), r.admin, "", raised(9), true)
	require.NoError(t, err)
	require.True(t, done)
	require.EqualValues(t, 1, readEpoch(t, r).Number, "a dry run")
	raise(t, r, 1000)
	e := readEpoch(t, r)
	require.EqualValues(t, 1000, e.Number)
	require.Equal(t, old.Grant, e.Highest)
	require.WithinDuration(t, time.Now(), e.Raised.At, time.Hour)
	require.NotEmpty(t, e.Raised.Role)
	e.Raised.At, e.Raised.Role = time.Time{}, ""
	require.Equal(t, raised(1000), *e.Raised)

	write(t, store, old, set("x", 2)) // it still has the fence
	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(51, "b")})
	requireRejected(t, err, storage.ReasonEpochBehind)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: epochGrant(1000, 40+jump+1)})
	requireRejected(t, err, storage.ReasonTokenJump)
	write(t, store, claim(t, store, epochGrant(1000, 3)), set("x", 3))
	_, err = attempt(t.Context(), store, set("x", 4), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	for _, role := range []string{"origin", "replica"} {
		for _, sql := range []string{"update fence.epoch_raise set reason = 'none'", "delete from fence.epoch_raise", "truncate fence.epoch_raise"} {
			_, err := r.admin.Exec(t.Context(), "set session_replication_role = "+role+"; "+sql)
			require.ErrorContains(t, err, "ZF009", sql)
		}
	}
	verifyChain(t, r.admin)
}

// It is raised by the owner alone, and only upwards.
func TestRaiseEpoch_OnlyUp_N20(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	for _, pool := range []*pgxpool.Pool{r.app, r.reader} {
		_, err := postgres.RaiseEpoch(t.Context(), pool, "", raised(2), false)
		require.ErrorContains(t, err, "42501")
	}
	raise(t, r, 5)
	for _, wanted := range []int64{2, 5} {
		for _, dry := range []bool{true, false} {
			done, err := postgres.RaiseEpoch(t.Context(), r.admin, "", raised(wanted), dry)
			require.NoError(t, err)
			require.False(t, done)
		}
	}
	for _, change := range []func(*postgres.EpochRaise){
		func(r *postgres.EpochRaise) { r.Epoch = 1 },
		func(r *postgres.EpochRaise) { r.Epoch = fence.MaxEpoch + 1 },
		func(r *postgres.EpochRaise) { r.Token = -1 },
		func(r *postgres.EpochRaise) { r.Token = fence.MaxToken + 1 },
		func(r *postgres.EpochRaise) { r.Reason = "" },
		func(r *postgres.EpochRaise) { r.Operator = strings.Repeat("x", 1001) },
	} {
		bad := raised(6)
		change(&bad)
		_, err := postgres.RaiseEpoch(t.Context(), r.admin, "", bad, false)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	require.Equal(t, raised(5).Reason, readEpoch(t, r).Raised.Reason)
	require.EqualValues(t, 5, readEpoch(t, r).Number)
}

// Of raises to one epoch at a time one succeeds.
func TestRaiseEpoch_IsOneAtATime_N20(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	var raises atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			done, err := postgres.RaiseEpoch(t.Context(), r.admin, "", raised(2), false)
			assert.NoError(t, err)
			if done {
				raises.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, raises.Load())
	require.EqualValues(t, 1, query[int](t, r.admin, "select count(*) from fence.epoch_raise"))
}

// A token far too high has claimed a resource, as the owner's statement allows: no later
// holder gets in, until the epoch is raised.
func TestRaiseEpoch_FreesAResourceFromAnAbsurdToken_HC2(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	claim(t, store, grant(7, "a"))
	mustExec(t, r.admin, "update fence.setting set epoch = 1, token = $1::bigint", int64(1<<61))
	poison := claim(t, store, grant(1<<61, "absurd"))
	require.Equal(t, poison.Grant, readEpoch(t, r).Highest)
	_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(8, "b")})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	raise(t, r, 2)
	write(t, store, claim(t, store, epochGrant(2, 8)), set("x", 1))
	_, err = store.Claim(t.Context(), storage.Claim{Grant: epochGrant(2, 1<<61)})
	requireRejected(t, err, storage.ReasonTokenJump)
	_, err = attempt(t.Context(), store, set("x", 2), poison)
	require.ErrorIs(t, err, storage.ErrStaleToken)
}

// A fence and its history are gone, as after a restore of other tables than these: nothing
// says any more which grants are over. A raise shuts out all of them.
func TestRaiseEpoch_ShutsOutGrantsWhoseFenceIsGone_G3(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	old := claim(t, store, grant(5, "a"))
	write(t, store, claim(t, store, grant(6, "b")), set("x", 1))
	mustExec(t, r.admin, `alter table fence.resource disable trigger all; alter table fence.history disable trigger all;
		delete from fence.resource; delete from fence.history;
		alter table fence.resource enable always trigger protect_fence; alter table fence.resource enable always trigger protect_name;
		alter table fence.history enable always trigger protect_history; alter table fence.history enable always trigger protect_kept_history`)
	raise(t, r, 2)
	_, err := attempt(t.Context(), store, set("x", 2), old)
	require.Error(t, err)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: old.Grant})
	requireRejected(t, err, storage.ReasonEpochBehind)
	write(t, store, claim(t, store, epochGrant(2, 1)), set("x", 3))
	holds(t, r.admin, "x", 3)
}

// Only the table of settings was put back: the fences still say which epoch they have seen.
func TestReadEpoch_TakesTheFencesEpochIfItIsHigher_N20(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	claim(t, store, epochGrant(4, 5))
	mustExec(t, r.admin, "alter table fence.setting disable trigger all; update fence.setting set epoch = 1; alter table fence.setting enable always trigger protect_epoch; alter table fence.setting enable always trigger protect_fence")
	require.EqualValues(t, 4, readEpoch(t, r).Number)
}
