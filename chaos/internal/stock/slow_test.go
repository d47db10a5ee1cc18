package stock

import (
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/stretchr/testify/require"
)

// In the midst of a transaction nobody thinks for longer than that may be idle, and who
// thinks keeps no resource that quick operations are about.
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
