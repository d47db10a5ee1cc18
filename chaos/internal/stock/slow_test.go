package stock

import (
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/stretchr/testify/require"
)

// An operation thinks in a transaction for less than the idle timeout, and a slow operation
// locks no resource of quick operations.
func TestStock_ThinksLongWithoutATransaction(t *testing.T) {
	require.Less(t, workload.LongestInTx, workload.StoreBounds.IdleTimeout)
	for seed := range uint64(200) {
		op := workload.Op{ID: "w0.1", Resource: SlowResources[0], Seed: seed, Think: workload.Thinking{Lasts: workload.LongestInTx}}
		require.NotEqual(t, "all", Stock{}.order(op).action)
		op.Think.Lasts++
		require.Equal(t, "hold", Stock{}.order(op).action)
		op.Action = "do"
		require.Equal(t, "do", Stock{}.order(op).action)
	}
}
