package audit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// written is what a store has written: two resources, the first of which went from a to b, and
// was asked for in vain by a twice.
type written struct {
	dsn  string
	pool *pgxpool.Pool
	a, b fence.Grant
}

func newWritten(t *testing.T) written {
	t.Helper()
	w := written{dsn: template.Database(t), a: fence.Grant{Resource: "sku/1", Epoch: 1, Token: 5, Holder: "a"}, b: fence.Grant{Resource: "sku/1", Epoch: 1, Token: 7, Holder: "b"}}
	w.pool = openPool(t, w.dsn)
	store, err := postgres.NewStore(w.pool, nil)
	require.NoError(t, err)
	claim := func(g fence.Grant) storage.Claim {
		claims, err := store.Claim(t.Context(), storage.Claim{Grant: g})
		require.NoError(t, err)
		return claims[0]
	}
	commit := func(c storage.Claim, ops ...storage.OpRecord) (storage.Claim, error) {
		txn, err := store.Begin(t.Context(), c)
		require.NoError(t, err)
		claims, err := txn.Commit(t.Context(), []storage.Move{{Ops: ops}})
		if err != nil {
			return storage.Claim{}, err
		}
		return claims[0], nil
	}
	old := claim(w.a)
	old, err = commit(old, storage.OpRecord{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, storage.OpRecord{ID: "order-2"})
	require.NoError(t, err)
	claim(w.b)
	for range 2 {
		_, err = commit(old)
		require.ErrorIs(t, err, storage.ErrStaleToken)
	}
	claim(fence.Grant{Resource: "sku/2", Epoch: 1, Token: 6, Holder: "a"})
	return w
}

func TestEntries_HaveAllThatTheStoreWrote(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	entries := list(t, openHistory(t, w.pool).Entries(t.Context(), audit.Filter{Resources: "sku/1"}))
	require.Len(t, entries, 3)
	store, err := postgres.NewStore(w.pool, nil)
	require.NoError(t, err)
	want, err := store.Entries(t.Context(), "sku/1", 0, 10)
	require.NoError(t, err)
	for i, e := range entries {
		require.Equal(t, want[i], e.Entry)
		require.NotZero(t, e.XID)
	}
	require.Equal(t, []int64{1, 1, 3}, []int64{entries[0].Claim, entries[1].Claim, entries[2].Claim})

	_, err = w.pool.Exec(t.Context(), "alter table fence.history disable trigger all; delete from fence.history where seq = 1")
	require.NoError(t, err)
	entries = list(t, openHistory(t, w.pool).Entries(t.Context(), audit.Filter{}))
	require.Equal(t, fence.Grant{Resource: "sku/1"}, entries[0].Grant, "its claim is gone")
}

func TestEntries_EndBesideAWriter(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	store, err := postgres.NewStore(w.pool, nil)
	require.NoError(t, err)
	c := storage.Claim{Grant: fence.Grant{Resource: "sku/2", Epoch: 1, Token: 6, Holder: "a"}}
	for _, filter := range []audit.Filter{{Resource: "sku/2"}, {Resource: "sku/2", Holder: "a"}} {
		read := 0
		for _, err := range openHistory(t, w.pool).Entries(t.Context(), filter) {
			require.NoError(t, err)
			read++
			require.Less(t, read, 10, "it reads what is written meanwhile")
			claims, err := store.Claim(t.Context(), c)
			require.NoError(t, err)
			txn, err := store.Begin(t.Context(), claims[0])
			require.NoError(t, err)
			_, err = txn.Commit(t.Context(), nil)
			require.NoError(t, err)
		}
	}
}

func TestRejections_AreCounted(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	d := openHistory(t, w.pool)
	all := list(t, d.Rejections(t.Context(), audit.Filter{}))
	require.Len(t, all, 1)
	r := all[0]
	require.Equal(t, storage.ReasonStale, r.Reason)
	require.Equal(t, []fence.Grant{w.a, w.b}, []fence.Grant{r.Grant, r.Current})
	require.EqualValues(t, 2, r.Count)
	require.True(t, r.Since.Before(r.First) && r.First.Before(r.Last))
	for name, c := range map[string]struct {
		filter audit.Filter
		want   int
	}{
		"resource":       {audit.Filter{Resources: "sku/?", Holder: "a"}, 1},
		"another":        {audit.Filter{Resource: "sku/2"}, 0},
		"not its holder": {audit.Filter{Holder: "b"}, 0},
		"since the last": {audit.Filter{Since: r.Last}, 1},
		"later":          {audit.Filter{Since: r.Last.Add(time.Microsecond)}, 0},
		"until after":    {audit.Filter{Until: r.First.Add(time.Microsecond)}, 1},
		"before":         {audit.Filter{Until: r.First}, 0},
		"after it":       {audit.Filter{After: r.Cursor()}, 0},
	} {
		require.Len(t, list(t, d.Rejections(t.Context(), c.filter)), c.want, name)
	}
}

// The reader can read and verify all of it, and the app role can read all but holds.
func TestDatabase_IsReadByTheRoles(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	name := fmt.Sprintf("role_%016x", rand.Uint64())
	for role, granted := range map[string]postgres.Roles{name + "r": {Reader: name + "r"}, name + "a": {App: name + "a"}} {
		require.NoError(t, postgres.GrantRoles(t.Context(), w.pool, "", granted))
		t.Cleanup(func() { _, _ = w.pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role) })
		config := w.pool.Config()
		config.ConnConfig.RuntimeParams["role"] = role
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		d := openHistory(t, pool)
		require.Len(t, list(t, d.Entries(t.Context(), audit.Filter{Since: time.Unix(0, 0)})), 4)
		require.Len(t, list(t, d.Operations(t.Context(), audit.Filter{})), 2)
		require.Len(t, list(t, d.Rejections(t.Context(), audit.Filter{})), 1)
		require.Len(t, list(t, d.Heads(t.Context())), 2)
		if _, err := d.Holds(t.Context()); granted.App != "" {
			require.ErrorContains(t, err, "permission denied")
		} else {
			require.NoError(t, err)
			requireHonest(t, verify(t, pool, audit.VerifyOptions{}))
			defer func() {
				mustExec(t, w.pool, "alter table fence.rejection enable row level security")
				_, err = d.Verify(t.Context(), audit.VerifyOptions{})
				require.ErrorContains(t, err, "row-level security", "rows that a policy hides can't be verified")
			}()
		}
	}
}

// What is no array of operations, as an application role may seal, is an operation with its text as an attribute. It
// keeps nothing else from being read or filtered.
func TestEntries_WithMalformedOperations(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	malformed := []string{`[1]`, `[{"id":5}]`, `[{"attrs":{"k":1}}]`, `{"id":"order-1"}`, `[1e999999]`}
	for _, ops := range append(malformed, `[{"id":"order-1","name":"\u0000"}]`, `[{"id":"\ud800"}]`) {
		mustExec(t, w.pool, "insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops)"+
			" select resource, 'w', max(seq) + 1, 1, 1, '1', now(), '\\x0a', $1::text::json from fence.history where resource = (select id from fence.resource where name = 'sku/2') group by resource", ops)
	}
	entries := list(t, openHistory(t, w.pool).Entries(t.Context(), audit.Filter{Resource: "sku/2"}))
	require.Len(t, entries, 8)
	for i, text := range malformed {
		require.Equal(t, []storage.OpRecord{{Attrs: map[string]string{"malformed": text}}}, entries[i+1].Ops)
	}
	for _, c := range []struct {
		op   storage.OpRecord
		want []string
	}{
		{storage.OpRecord{ID: "order-1"}, []string{"sku/1 2", "sku/2 7"}},
		{storage.OpRecord{Name: "sell"}, []string{"sku/1 2"}},
		{storage.OpRecord{Attrs: map[string]string{"qty": "2"}}, []string{"sku/1 2"}},
		{storage.OpRecord{Attrs: map[string]string{"malformed": "[1]"}}, []string{"sku/2 2"}},
	} {
		var got []string
		for _, e := range list(t, openHistory(t, w.pool).Entries(t.Context(), audit.Filter{Op: c.op})) {
			got = append(got, fmt.Sprint(e.Grant.Resource, " ", e.Seq))
		}
		require.Equal(t, c.want, got, "%+v", c.op)
	}
}

// Each hold is listed once, with its last reason, and also if its resource doesn't exist yet.
func TestHolds_AreThosePlaced(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	d := openHistory(t, pool)
	none, err := d.Holds(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
	began := time.Now()
	for _, resource := range []string{"sku/3", "sku/1", "sku/2", "order/1", "sku/*"} {
		require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", resource, "case 7"))
	}
	require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", "sku/2", "case 8"))
	_, err = postgres.ReleaseHistory(t.Context(), pool, "", "sku/1")
	require.NoError(t, err)
	holds, err := d.Holds(t.Context())
	require.NoError(t, err)
	var want []audit.Hold
	for i, resource := range []string{"order/1", "sku/*", "sku/2", "sku/3"} {
		want = append(want, audit.Hold{Resource: resource, Reason: "case 7", Role: "postgres", At: holds[i].At})
		require.WithinRange(t, holds[i].At, began.Add(-time.Minute), time.Now().Add(time.Minute))
	}
	want[2].Reason = "case 8"
	require.Equal(t, want, holds)
}
