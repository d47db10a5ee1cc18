package audit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A role that may read is enough.
func TestVerify_NeedsTheReaderRoleAlone(t *testing.T) {
	t.Parallel()
	dsn := evidence.Database(t)
	admin := openPool(t, dsn)
	reader := fmt.Sprintf("reader_%016x", rand.Uint64())
	require.NoError(t, postgres.GrantRoles(t.Context(), admin, "", postgres.Roles{Reader: reader}))
	mustExec(t, admin, "alter role "+reader+" login")
	t.Cleanup(func() {
		mustExec(outsideTests{context.Background()}, admin, "drop owned by "+reader+"; drop role "+reader)
	})
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.User(reader)
	pool := openPool(t, u.String())
	r := verify(t, pool, audit.VerifyOptions{})
	requireHonest(t, r)
	require.EqualValues(t, 6, r.Resources)

	mustExec(t, admin, "alter table fence.rejection enable row level security")
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	_, err = d.Verify(t.Context(), audit.VerifyOptions{})
	require.ErrorContains(t, err, "row-level security", "rows that a policy hides can't be verified")
}

// Only what was asked for is verified, also if its fence is gone.
func TestVerify_KeepsToAPattern(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	unprotected(t, pool, "history", "update fence.history set tx = 5 where resource in (id('sku/1'), id('sku/3')) and seq = 4")
	unprotected(t, pool, "resource", "delete from fence.resource where name = 'sku/6'")
	known := []audit.Head{{Resource: "sku/7", Seq: 3}, {Resource: "order/1", Seq: 3}}
	for pattern, want := range map[string]struct {
		resources int64
		found     []string
	}{
		"":        {6, []string{"order/1", "sku/1", "sku/3", "sku/6", "sku/7"}},
		"sku/*":   {6, []string{"sku/1", "sku/3", "sku/6", "sku/7"}},
		"sku/1":   {1, []string{"sku/1"}},
		"*1":      {1, []string{"order/1", "sku/1"}},
		"sku/?":   {6, []string{"sku/1", "sku/3", "sku/6", "sku/7"}},
		"sku/6":   {1, []string{"sku/6"}},
		"sku/2":   {1, nil},
		"sku_1":   {0, nil},
		"order/*": {0, []string{"order/1"}},
	} {
		r := verify(t, pool, audit.VerifyOptions{Resources: pattern, Known: known})
		var found []string
		for _, f := range r.Findings {
			found = append(found, f.Resource)
		}
		require.Equal(t, want.found, found, pattern)
		require.Equal(t, want.resources, r.Resources, pattern)
	}
}

// Each function that has a text is compared, whatever the schema's name.
func TestVerify_ComparesAllFunctions(t *testing.T) {
	t.Parallel()
	const schema = "order" // a word of SQL
	pool := openPool(t, template.Database(t))
	_, err := postgres.Migrate(t.Context(), pool, schema)
	require.NoError(t, err)
	d, err := audit.Open(pool, schema)
	require.NoError(t, err)
	r, err := d.Verify(t.Context(), audit.VerifyOptions{})
	require.NoError(t, err)
	requireHonest(t, r)
	changed, err := pool.Exec(t.Context(), `update pg_proc set prosrc = prosrc || ' ' where pronamespace = '"order"'::regnamespace and prosqlbody is null`)
	require.NoError(t, err)
	r, err = d.Verify(t.Context(), audit.VerifyOptions{})
	require.NoError(t, err)
	require.Greater(t, r.TotalFindings, int64(30))
	require.Equal(t, changed.RowsAffected(), r.TotalFindings)
}
