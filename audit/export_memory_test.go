package audit_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
)

// An export holds a small part of what it writes in memory. The test isn't parallel: it measures the
// heap of the process.
func TestExport_HoldsASmallPartInMemory(t *testing.T) {
	const entries = 100_000
	pool := openPool(t, template.Database(t))
	fillHistory(t, pool, entries, entries/2)
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	var out heapMeter
	before := liveHeap()
	exported, err := d.Export(t.Context(), &out, "")
	require.NoError(t, err)
	require.EqualValues(t, entries, exported.Entries)
	t.Logf("%d bytes were written, with %d on the heap at most; before there were %d", out.written, out.most, before)
	require.Greater(t, out.written, 20<<20)
	require.Less(t, out.most, before+8<<20)
}

// heapMeter notes what is on the heap after each few megabytes that are written to it.
type heapMeter struct {
	written, measured int
	most              uint64 // bytes
}

func (m *heapMeter) Write(p []byte) (int, error) {
	if m.written += len(p); m.written >= m.measured+2<<20 {
		m.measured, m.most = m.written, max(m.most, liveHeap())
	}
	return len(p), nil
}

// liveHeap is how many bytes the heap has in use after a collection.
func liveHeap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
