package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newQueue(t *testing.T) (*pgxpool.Pool, *postgres.Store) {
	t.Helper()
	pool, store := fresh(t, nil)
	mustExec(t, pool, "insert into fence.queue (name) values ('sku')")
	return pool, store
}

func retires(t *testing.T, pool *pgxpool.Pool, want int, msgAndArgs ...any) {
	t.Helper()
	mustExec(t, pool, "update fence.queue set swept_at = '-infinity'")
	require.Equal(t, want, query[int](t, pool, "select fence.retire('sku', 1000)"), msgAndArgs...)
}

// Nothing is left of a retired resource, and nothing that was granted before comes back: no claim, no transaction whose
// claim is gone, no COMMIT in doubt. Later grants go on, and what a process remembers isn't taken for lost.
func TestRetire_LeavesNothingAndNoWayBack(t *testing.T) {
	t.Parallel()
	pool, store := newQueue(t)
	first := claim(t, store, grant(5, "a"))
	last := claim(t, store, grant(6, "b"))
	write(t, store, last, set("x", 1))
	claim(t, store, grantOf("skull/1", 7))
	aged(t, pool, "1 hour")
	retires(t, pool, 1)
	require.Equal(t, "skull/1", query[string](t, pool, "select string_agg(name, ' ') from fence.resource"))
	require.Equal(t, 1, query[int](t, pool, "select count(*) from fence.history"))

	for _, c := range []storage.Claim{first, last} {
		_, err := attempt(t.Context(), store, set("x", 2), c)
		require.Equal(t, c.Grant, requireRejected(t, err, storage.ReasonStale).Grant)
		_, err = claimOne(t.Context(), store, c.Grant)
		require.Equal(t, fence.Token(6), requireRejected(t, err, storage.ReasonStale).Current.Token)
		_, err = claimHere(t, store, storage.Claim{Grant: c.Grant})
		require.Equal(t, storage.ErrHeld, err, "Claim rejects it")
		_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 7})
		require.ErrorIs(t, err, postgres.ErrPruned)
		own := storage.Claim{Grant: c.Grant, Resource: c.Resource, Position: storage.Position{Seq: 1}, Own: true}
		_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{own}, Tx: 7})
		require.ErrorIs(t, err, postgres.ErrPruned, "it may have made the fence")
	}
	both := []storage.Claim{claim(t, store, grantOf("skull/1", 8)), last}
	_, err := attempt(t.Context(), store, set("x", 2), both...)
	require.Equal(t, last.Grant, requireRejected(t, err, storage.ReasonStale).Grant)
	holds(t, pool, "x", 1)

	again, err := store.Claim(t.Context(), storage.Claim{Grant: grant(8, "c"), Position: storage.Position{Seq: 3, Tx: 7}})
	require.NoError(t, err)
	require.Equal(t, int64(1), again[0].Seq)
	write(t, store, again[0], set("x", 3))
}

// Each new token is above those that were retired, also where another lock service had issued them.
func TestRetire_TokensGoOnAbove(t *testing.T) {
	t.Parallel()
	pool, store := newQueue(t)
	claim(t, store, grant(500, "a"))
	aged(t, pool, "1 hour")
	retires(t, pool, 1)
	require.Greater(t, beginOwn(t, store, unseen(resource)...).write(t, set("x", 1))[0].Grant.Token, fence.Token(500))

	mustExec(t, pool, "update fence.queue set token = 100000")
	lease, err := newLocker(t, pool).Acquire(t.Context(), "sku/2")
	require.NoError(t, err)
	require.Greater(t, lease.Grant().Token, fence.Token(100000))
}

// What is young, in use, evidence, or a result that guard.Once would return stays.
func TestRetire_LeavesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for name, needed := range map[string]func(t *testing.T, pool *pgxpool.Pool, store *postgres.Store){
		"owned": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			_, err := newLocker(t, pool).Acquire(t.Context(), resource)
			require.NoError(t, err)
		},
		"awaited": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			mustExec(t, pool, "insert into fence.lock_waiter (resource, session, holder) values ($1, 1, 'w/1')", resource)
		},
		"on hold": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", resource, "case 1"))
		},
		"with a result of guard.Once": func(t *testing.T, _ *pgxpool.Pool, store *postgres.Store) {
			_, err := connect(t, store, claim(t, store, grant(6, "b"))).Commit(t.Context(), keeping(storage.OnceKey{Key: "order 7"}, nil))
			require.NoError(t, err)
		},
		"just being moved": func(t *testing.T, _ *pgxpool.Pool, store *postgres.Store) {
			beginOwn(t, store, unseen(resource)...)
		},
		"young": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			mustExec(t, pool, "update fence.queue set keep = '1 day'")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := newQueue(t)
			claim(t, store, grant(5, "a"))
			aged(t, pool, "1 hour")
			needed(t, pool, store) // it may claim
			mustExec(t, pool, "update fence.resource set claimed_at = claimed_at - interval '1 hour' where id in (select id from fence.resource for update skip locked)")
			retires(t, pool, 0)
		})
	}
}

// A prune under way may leave a checkpoint, which needs its fence.
func TestRetire_WaitsForAPrune(t *testing.T) {
	t.Parallel()
	pool, store := newQueue(t)
	written(t, store, grant(5, "a"), 3)
	aged(t, pool, "1 day")
	mustExec(t, pool, "update fence.setting set history_keep_entries = 1")
	pruning, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer pruning.Rollback(t.Context())
	require.Equal(t, 2, query[int](t, pruning, "select fence.prune(array[(select id from fence.resource)], array[4])"))
	retired := background(func() (n int, err error) {
		err = pool.QueryRow(t.Context(), "select fence.retire('sku', 1000)").Scan(&n)
		return n, err
	})
	require.Eventually(t, func() bool {
		return query[bool](t, pool, "select exists (select from pg_locks where not granted and relation = 'fence.checkpoint'::regclass)")
	}, time.Minute, time.Millisecond)
	require.NoError(t, pruning.Commit(t.Context()))
	r := <-retired
	require.NoError(t, r.err)
	require.Zero(t, r.value)
}

func TestRetire_IsNotDoneByHand(t *testing.T) {
	t.Parallel()
	pool, store := newQueue(t)
	write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	for _, sql := range []string{
		"delete from fence.resource",
		"truncate fence.resource",
		"truncate fence.queue",
		"with r as (update fence.queue set token = 4, epoch = 1 returning 1) delete from fence.resource using r",
		"update fence.queue set token = 5, epoch = 1; delete from fence.resource; delete from fence.history where kind = 'w'",
		"update fence.queue set token = 5, epoch = 1; delete from fence.history",
		"update fence.queue set token = 5, epoch = 1; update fence.queue set token = 4",
		"update fence.queue set token = 5, epoch = 1; delete from fence.queue",
		"update fence.queue set token = 5, epoch = 1; update fence.queue set name = 'other'",
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "ZF009", sql)
	}
}
