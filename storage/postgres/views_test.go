package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
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

// A filter by resource and position is answered by indexes, and so is one by time.
func TestViews_UseTheIndexes(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), with(map[string]string{"enable_seqscan": "off"}), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	for sql, want := range map[string][]string{
		"select * from fence.entry where resource = 'sku/1' and position between 5 and 9":                          {"resource_name_key", "Index Cond: ((resource = r.id) AND ((seq)::bigint >= 5) AND ((seq)::bigint <= 9))"},
		"select * from fence.entry_operation where resource = 'sku/1' and position > 5":                            {"resource_name_key", "(seq)::bigint > 5"},
		"select * from fence.current_fence where resource > 'sku/1' order by resource limit 10":                    {"resource_name_key"},
		"select * from fence.rejection where (resource, id) > ('a', 1) order by resource, id limit 9":              {"rejection_resource"},
		"select * from fence.entry where ten_minutes >= '2026-03-03 10:00Z' and ten_minutes < '2026-03-03 11:00Z'": {"history_at"},
		"select * from fence.entry_operation where ten_minutes = '2026-03-03 10:00Z'":                              {"history_at"},
	} {
		plan := strings.Join(column(t, pool, "explain "+sql), "\n")
		require.NotContains(t, plan, "Seq Scan", sql)
		for _, text := range want {
			require.Contains(t, plan, text, sql)
		}
	}
}

// Each view, and each of their columns that has no plain name, says what it is.
func TestViews_AreExplained(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	require.Empty(t, column(t, pool, "select relname from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'v' and obj_description(oid) is null"))
}
