package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

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
