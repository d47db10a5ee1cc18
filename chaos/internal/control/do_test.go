package control_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

var errMine = errors.New("mine")

// newShop is a world with a worker under the plainest lock that excludes others.
func newShop(t *testing.T) *worker {
	t.Helper()
	return newWorld(t, byName(t, "postgres-advisory")).newWorker("A")
}

func insert(ctx context.Context, tx pgx.Tx, token int64) error {
	_, err := tx.Exec(ctx, "insert into sale (seller, token) values ('A', $1)", token)
	return err
}

// Work that fails is rolled back, and the lock is released whatever happens.
func TestDo_RollsBackWhatFailsAndReleases(t *testing.T) {
	t.Parallel()
	k := newShop(t)
	for name, test := range map[string]struct {
		work control.Work
		want error
	}{
		"an error": {func(ctx context.Context, tx pgx.Tx, token int64) error {
			return errors.Join(insert(ctx, tx, token), errMine)
		}, errMine},
		"a failed statement that is ignored": {func(ctx context.Context, tx pgx.Tx, token int64) error {
			err := insert(ctx, tx, token)
			_, _ = tx.Exec(ctx, "select 1/0")
			return err
		}, pgx.ErrTxCommitRollback},
	} {
		err := control.Do(k.ctx, k.lock, k.pool, resource, test.work)
		require.ErrorIs(k, err, test.want, name)
		require.NotErrorIs(k, err, control.ErrUnknown, name)
		require.Zero(k, k.sold(), name)
	}
	func() {
		defer func() { require.Equal(k, "mine", recover()) }()
		_ = control.Do(k.ctx, k.lock, k.pool, resource, func(context.Context, pgx.Tx, int64) error { panic("mine") })
	}()
	require.NoError(k, k.newWorker("B").begin(afterReading).finish(), "the lock is free")
}

// A COMMIT has three outcomes: done, rejected by the server, and unknown.
func TestDo_TellsARejectedCommitFromAnUnansweredOne(t *testing.T) {
	t.Parallel()
	k := newShop(t)
	k.exec("alter table sale add constraint once unique (seller) deferrable initially deferred")
	k.exec("insert into sale (seller, token) values ('A', 1)")
	err := control.Do(k.ctx, k.lock, k.pool, resource, insert)
	require.ErrorContains(k, err, "once")
	require.NotErrorIs(k, err, control.ErrUnknown)

	for name, test := range map[string]struct {
		action *pgproxy.Action
		sold   int
	}{
		"the COMMIT is lost": {pgproxy.SwallowCommit(), 0},
		"its answer is lost": {pgproxy.SwallowReply(), 1},
	} {
		k.exec("truncate sale")
		proxy, err := pgproxy.New(k.servers.Postgres)
		require.NoError(k, err)
		proxy.OnCommit(func(string) *pgproxy.Action { return test.action })
		through := *k.world
		through.servers.Postgres = proxy.DSN()
		err = control.Do(k.ctx, k.lock, through.openPool(), resource, insert)
		require.ErrorIs(k, err, control.ErrUnknown, name)
		require.NoError(k, test.action.Wait(k.ctx))
		require.Equal(k, test.sold, k.sold(), name)
		require.NoError(k, proxy.Close())
	}
}

// A backend that is ended says so in place of an answer to the COMMIT.
func TestDo_AnEndedBackendDoesNotAnswerTheCommit(t *testing.T) {
	t.Parallel()
	k := newShop(t)
	err := control.Do(k.ctx, k.lock, k.pool, resource, func(ctx context.Context, tx pgx.Tx, _ int64) error {
		k.exec("select pg_terminate_backend($1, 60000)", tx.Conn().PgConn().PID())
		return nil
	})
	require.ErrorIs(k, err, control.ErrUnknown)
}

// Work that was committed is done, whatever becomes of the lock.
func TestDo_SaysWhatIsDoneButNotReleased(t *testing.T) {
	t.Parallel()
	k := newShop(t)
	end := func(ctx context.Context, tx pgx.Tx, token int64) error {
		cutSession(k.world)
		return insert(ctx, tx, token)
	}
	require.ErrorIs(k, control.Do(k.ctx, k.lock, k.pool, resource, end), control.ErrNotReleased)
	require.Equal(k, 1, k.sold())
	err := control.Do(k.ctx, k.lock, k.pool, resource, func(ctx context.Context, tx pgx.Tx, token int64) error {
		return errors.Join(end(ctx, tx, token), errMine)
	})
	require.ErrorIs(k, err, errMine)
	require.NotErrorIs(k, err, control.ErrNotReleased, "it isn't done")
	require.Equal(k, 1, k.sold())
}

// Within Hold, several transactions have one grant.
func TestHold_RunsSeveralTransactionsUnderOneGrant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byName(t, "token-compare"))
	a, b := w.newA(long), w.newWorker("B")
	err := control.Hold(w.ctx, a.lock, a.pool, resource, func(ctx context.Context, do func(context.Context, control.Work) error) error {
		require.ErrorIs(t, do(ctx, func(context.Context, pgx.Tx, int64) error { return errMine }), errMine)
		for range 2 {
			require.NoError(t, do(ctx, insert))
			b.requireExcluded()
		}
		return errMine
	})
	require.ErrorIs(t, err, errMine)
	require.Equal(t, 2, w.sold(), "each was committed by itself")
	require.Equal(t, 1, w.number("select count(distinct token) from sale"))
	require.NoError(t, b.begin(afterReading).finish(), "the lock is free")
}
