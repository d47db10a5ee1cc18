package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// verifyChain requires that the history verifies, by hashes computed apart from the database. That they
// cover each column is shown by the tests of package audit.
func verifyChain(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	database, err := audit.Open(pool, "")
	require.NoError(t, err)
	report, err := database.Verify(t.Context(), audit.VerifyOptions{})
	require.NoError(t, err)
	require.NotZero(t, report.Entries)
	require.Empty(t, report.Findings)
}

// A fence works without its history; only outcomes that the history had are unknown.
func TestFence_StandsWithoutHistory(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old := claim(t, store, grant(4, "a"))
	doubtful := claim(t, store, grant(5, "b"))
	c := write(t, store, doubtful, set("x", 1))
	unprotected(t, pool, "delete from fence.history")
	_, err := attempt(t.Context(), store, set("x", 2), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = attempt(t.Context(), store, set("x", 2), doubtful)
	require.ErrorIs(t, err, storage.ErrOvertaken)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(4, "a")})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{doubtful}, Tx: c.Tx})
	require.ErrorIs(t, err, postgres.ErrPruned)
	write(t, store, c, set("x", 3))
}

// A fence that was deleted is rebuilt where its history ends.
func TestFence_IsRebuiltFromItsHistory(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old := claim(t, store, grant(4, "a"))
	c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
	unprotected(t, pool, "delete from fence.resource")
	_, err := attempt(t.Context(), store, set("x", 2), c)
	requireRejected(t, err, storage.ReasonWentBack)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1})
	require.ErrorIs(t, err, postgres.ErrPruned)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: old.Grant})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, c, claim(t, store, c.Grant))
	_, err = attempt(t.Context(), store, set("x", 2), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	write(t, store, c, set("x", 3))
	claim(t, store, grant(6, "c"))
	verifyChain(t, pool)
	holds(t, pool, "x", 3)
}

// The row of a fence was restored to an older state, and its history was not: every move
// fails with an error that says so, and the remedy in the message works.
func TestFence_BehindItsHistoryIsNamedAndRepaired(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	other := grantOf("sku/2", 5)
	whole := write(t, store, claim(t, store, other), set("y", 1))
	old := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	row := query[string](t, pool, "select f::text from fence.resource f where name = $1", resource)
	doubt := storage.InDoubt{Claims: []storage.Claim{old}, Tx: 9}
	last := write(t, store, claim(t, store, grant(6, "b")), set("x", 2))
	mustExec(t, pool, `update fence.resource f set epoch = o.epoch, token = o.token, holder = o.holder, seq = o.seq, tx = o.tx,
		claim_seq = o.claim_seq, claimed_at = o.claimed_at, hash = o.hash from (select ($1::text::fence.resource).*) o where f.id = o.id`, row)

	_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(7, "c")})
	requireNotReady(t, err, postgres.FenceBehind)
	require.ErrorContains(t, err, `the owner of the schema runs: select "fence".repair()`)
	_, err = attempt(t.Context(), store, set("x", 3), old)
	requireNotReady(t, err, postgres.FenceBehind)
	_, err = store.Resolve(t.Context(), doubt)
	requireNotReady(t, err, postgres.FenceBehind)
	holds(t, pool, "x", 2)

	require.Equal(t, []string{resource}, column(t, pool, `select "fence".repair()`))
	require.Empty(t, column(t, pool, `select "fence".repair()`))
	_, err = attempt(t.Context(), store, set("x", 3), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, last, claim(t, store, last.Grant))
	write(t, store, last, set("x", 4))
	write(t, store, claim(t, store, grant(7, "c")), set("x", 5))
	write(t, store, whole, set("y", 2))
	verifyChain(t, pool)
}

// The views say in words what the tables have in numbers.
func TestViews_SayWhatTheTablesHave(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	txn := begin(t, store, c)
	claims, err := txn.Commit(t.Context(), []storage.Move{{Ops: []storage.OpRecord{{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, {ID: "order-2"}}}})
	require.NoError(t, err)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: claims, Tx: 77})
	require.NoError(t, err)
	unprotected(t, r.admin, "insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops) select id, 'x', 4, 99, 1, '1', now(), '\\x0a', '{}' from fence.resource")

	require.Equal(t, []string{
		"sku/1 1 claim 1 5 a 1", "sku/1 2 write 1 5 a 1", "sku/1 3 void 1 5 a 1", "sku/1 4 x - - - 99",
	}, column(t, r.reader, "select concat_ws(' ', resource, position, kind, coalesce(epoch::text, '-'), coalesce(token::text, '-'), coalesce(holder, '-'), claim_position) from fence.entry order by resource, position"))
	require.Equal(t, []string{
		`sku/1 2 1 order-1 sell {"qty":"2"} 5 a`, `sku/1 2 2 order-2 - - 5 a`, `sku/1 4 1 - {"malformed" : "{}"}`,
	}, column(t, r.reader, "select concat_ws(' ', resource, position, number, id, coalesce(name, '-'), coalesce(attrs::text, '-'), token, holder) from fence.entry_operation order by resource, position, number"))
	require.Equal(t, []string{"sku/1 3 1 5 a 1 t"},
		column(t, r.reader, "select concat_ws(' ', resource, position, epoch, token, holder, claim_position, hash = (select e.hash from fence.entry e where e.position = 3)) from fence.current_fence"))
}
