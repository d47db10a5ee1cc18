package audit_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage/postgres"
)

func export(t testing.TB, d *audit.Database, resources string) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := d.Export(t.Context(), &b, resources)
	require.NoError(t, err)
	return b.Bytes()
}

func verifyExports(t testing.TB, v audit.VerifyOptions, exports ...[]byte) audit.Report {
	t.Helper()
	var readers []io.Reader
	for _, e := range exports {
		readers = append(readers, bytes.NewReader(e))
	}
	r, err := audit.VerifyExports(t.Context(), v, readers...)
	require.NoError(t, err)
	return r
}

// An export says of a history what its database says.
func TestVerifyExports_AgreesWithTheDatabase(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	for _, pattern := range []string{"", "sku/1", "sku/*", "none"} {
		v := audit.VerifyOptions{Known: heads(t, pool)}
		of := verifyExports(t, v, export(t, d, pattern))
		requireHonest(t, of)
		v.Resources = pattern
		want := verify(t, pool, v)
		require.Equal(t, want.Entries, of.Entries, pattern)
		require.Equal(t, want.Resources, of.Resources, pattern)
		require.Equal(t, want.Rejections, of.Rejections, pattern)
		require.Equal(t, want.Operations, of.Operations, pattern)
		require.Equal(t, want.Heads, of.Heads, pattern)
		require.Equal(t, want.Unprovable, of.Unprovable, pattern)
		require.EqualValues(t, len(v.Known), of.Heads+of.Unprovable.Heads+of.LeftOut, "each head counts once: %s", pattern)
	}
}

// synced is an export in memory.
type synced struct{ bytes.Buffer }

func (*synced) Sync() error { return nil }

// What prunes exported, and exports of different times, agree, in any order.
func TestVerifyExports_PutsThemTogether(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	h := newHistory(t, pool, 3)
	mustExec(t, pool, "update fence.setting set history_keep = '1 hour', history_keep_entries = 1; drop function fence.first_kept; "+entriesAreOld)
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	var pruned synced
	var all [][]byte
	for range 4 {
		for range 20 {
			h.write()
			h.claimOne()
		}
		all = append(all, export(t, d, ""))
		// The policy is of hours; what the prune may delete is decided by first_kept.
		_, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Export: &pruned})
		require.NoError(t, err)
	}
	all = append(all, export(t, d, ""), pruned.Bytes())
	requireHonest(t, verifyExports(t, audit.VerifyOptions{Known: heads(t, pool)}, all...))
	require.NotEmpty(t, pruned.Bytes())
}
