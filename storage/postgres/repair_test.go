package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The row of a fence was restored to an older state, and its history was not: every move
// fails with an error that says so, and the remedy in the message works.
func TestFence_BehindItsHistoryIsNamedAndRepaired(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	other := grant(5, "a")
	other.Resource = "sku/2"
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
