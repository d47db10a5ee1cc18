package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// Operations of one entry are a group, and so are entries of one transaction with operations
// on one resource each.
func TestHits_Groups(t *testing.T) {
	invoke := func(op string, resources ...string) history.Event {
		return history.Event{Kind: history.Invoke, Process: "w1", Op: op, Resources: resources}
	}
	events := []history.Event{invoke("a", "sku/1"), invoke("b", "sku/1"), invoke("c", "sku/2"), invoke("both", "sku/1", "sku/2")}
	entry := func(resource string, xid uint64, ops ...string) observe.Entry {
		return observe.Entry{Resource: resource, Kind: "write", XID: xid, Ops: ops}
	}
	for name, tc := range map[string]struct {
		entries         []observe.Entry
		grouped, across int
	}{
		"one":                                {[]observe.Entry{entry("sku/1", 7, "a")}, 0, 0},
		"two of one resource":                {[]observe.Entry{entry("sku/1", 7, "a", "b")}, 2, 0},
		"on two resources":                   {[]observe.Entry{entry("sku/1", 7, "a", "b"), entry("sku/2", 7, "c")}, 2, 2},
		"in two transactions":                {[]observe.Entry{entry("sku/1", 7, "a"), entry("sku/2", 8, "c")}, 0, 0},
		"one operation on two resources":     {[]observe.Entry{entry("sku/1", 7, "both"), entry("sku/2", 7, "both")}, 0, 0},
		"operations that were not asked for": {[]observe.Entry{entry("sku/1", 7, "x"), entry("sku/2", 7, "y")}, 0, 0},
	} {
		hits := check.Hits(&check.Record{Events: events, Observed: observe.Observation{Entries: tc.entries}})
		require.Equal(t, tc.grouped, hits[check.HitGrouped], name)
		require.Equal(t, tc.across, hits[check.HitAcross], name)
	}
}
