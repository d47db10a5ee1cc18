package audit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Each hold is listed once, with its last reason, and also if its resource doesn't exist yet.
func TestHolds_AreThosePlaced(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	d := openHistory(t, pool)
	d.ReadPages(func(int) int { return 1 })
	require.Empty(t, list(t, d.Holds(t.Context(), audit.Filter{})))
	began := time.Now()
	for _, resource := range []string{"sku/3", "sku/1", "sku/2", "order/1", "sku/*"} {
		require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", resource, "case 7"))
	}
	require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", "sku/2", "case 8"))
	_, err := postgres.ReleaseHistory(t.Context(), pool, "", "sku/1")
	require.NoError(t, err)
	names := func(f audit.Filter) (names []string) {
		t.Helper()
		for _, h := range list(t, d.Holds(t.Context(), f)) {
			names = append(names, h.Resource)
			reason := "case 7"
			if h.Resource == "sku/2" {
				reason = "case 8"
			}
			require.Equal(t, audit.Hold{Resource: h.Resource, Reason: reason, Role: "postgres", At: h.At}, h)
			require.WithinRange(t, h.At, began.Add(-time.Minute), time.Now().Add(time.Minute))
		}
		return names
	}
	require.Equal(t, []string{"order/1", "sku/*", "sku/2", "sku/3"}, names(audit.Filter{}))
	require.Equal(t, []string{"sku/*", "sku/2", "sku/3"}, names(audit.Filter{Resources: "sku/?"}))
	require.Equal(t, []string{"sku/*"}, names(audit.Filter{Resource: "sku/*"}))
	require.Equal(t, []string{"sku/3"}, names(audit.Filter{After: audit.Hold{Resource: "sku/2"}.Cursor()}))
	for _, f := range []audit.Filter{{Since: began}, {Holder: "a"}, {After: audit.Cursor{Resource: "a", Seq: 1}}} {
		require.ErrorIs(t, failure(d.Holds(t.Context(), f)), fence.ErrInvalid)
	}
}
