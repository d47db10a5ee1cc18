package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// unprotected runs sql with the triggers that protect history and fences disabled.
func unprotected(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	triggers := map[string]string{"protect_history": "history", "protect_kept_history": "history", "protect_fence": "resource"}
	for trigger, table := range triggers {
		mustExec(t, pool, "alter table fence."+table+" disable trigger "+trigger)
	}
	mustExec(t, pool, sql, args...)
	for trigger, table := range triggers {
		mustExec(t, pool, "alter table fence."+table+" enable always trigger "+trigger)
	}
}

// A database that lost its newest transactions shows a fence behind what a holder has seen
// committed. That holder's error says so, and not that it is stale.
func TestFence_BehindItsHolderIsNoticed(t *testing.T) {
	t.Parallel()
	const back = "update fence.resource r set (epoch, token, holder, seq, tx, claim_seq, hash) = " +
		"(select c.epoch, c.token, c.holder, e.seq, e.tx, 1, e.hash from fence.history e join fence.history c on c.resource = e.resource and c.seq = e.claim where e.resource = r.id and e.seq = $1)"
	for name, lose := range map[string]func(t *testing.T, pool *pgxpool.Pool, store *postgres.Store){
		"its last write": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			unprotected(t, pool, back, 3)
			unprotected(t, pool, "delete from fence.history where seq > 3")
		},
		"its claim": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			unprotected(t, pool, back, 1)
			unprotected(t, pool, "delete from fence.history where seq > 1")
		},
		"its last write, and a sibling took the position": func(t *testing.T, pool *pgxpool.Pool, store *postgres.Store) {
			unprotected(t, pool, back, 3)
			unprotected(t, pool, "delete from fence.history where seq > 3")
			write(t, store, claim(t, store, grant(5, "b")), set("x", 30))
		},
		"its number alone": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			mustExec(t, pool, "update fence.resource set seq = seq - 1")
		},
		"everything": func(t *testing.T, pool *pgxpool.Pool, _ *postgres.Store) {
			unprotected(t, pool, "delete from fence.resource")
			unprotected(t, pool, "delete from fence.history")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			store := newStore(t, pool, nil)
			claim(t, store, grant(4, "a"))
			c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
			c = write(t, store, c, set("x", 2))
			require.EqualValues(t, 4, c.Seq)
			lose(t, pool, store)
			before := query[int64](t, pool, "select value from item")
			_, err := attempt(t.Context(), store, set("x", 3), c)
			requireRejected(t, err, storage.ReasonWentBack)
			holds(t, pool, "x", before)
			rejections, err := store.Rejections(t.Context(), resource, 10)
			require.NoError(t, err)
			require.Len(t, rejections, 1)
			require.Equal(t, storage.ReasonWentBack, rejections[0].Reason)
		})
	}
}

// The loss may come after the begin check: then the seal notices it.
func TestSeal_NoticesALossAfterTheBeginCheck(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool := newPool(t)
		store := newStore(t, pool, at(level))
		c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
		txn := begin(t, store, c)
		require.NoError(t, txn.Run(t.Context(), set("x", 2)))
		unprotected(t, pool, "delete from fence.resource")
		_, err := txn.Commit(t.Context(), nil)
		requireRejected(t, err, storage.ReasonWentBack)
		holds(t, pool, "x", 1)
	})
}
