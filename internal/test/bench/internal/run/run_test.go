package run

import (
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
)

// What was cut off at the end may show in the rows or not; anything else that was reported
// as done has to.
func TestLost_IsWhatTheRowsDoNotShow(t *testing.T) {
	o := load.Outcome{Succeeded: 10, Abandoned: 2}
	for sold, want := range map[int64]int64{15: 5, 20: 0, 24: 0, 26: -2} {
		require.Equal(t, want, lost(o, 2, sold), "%d sold", sold)
	}
}

func TestValues_AreOfAnOperation(t *testing.T) {
	o := load.Outcome{Operations: 100, Elapsed: 2 * time.Second, CPU: time.Second, Allocations: 500}
	v := values(o, map[result.Metric]float64{result.WAL: 25000, result.EtcdCPU: 4000})
	for m, want := range map[result.Metric]float64{
		result.Rate: 50, result.ClientCPU: 10000, result.EtcdCPU: 40, result.WAL: 250, result.Allocations: 5,
		result.Operations: 100,
	} {
		require.InDelta(t, want, v[m], 1e-9, m)
	}
	require.NotContains(t, values(load.Outcome{Elapsed: time.Second}, nil), result.P99)
}

// A server's time is that of its processes too, ended ones included, and not that of one with the same name elsewhere.
func TestOfServers_AreChildrenByTheirNames(t *testing.T) {
	all := map[int]procfs.ProcStat{
		2: {PPID: 1, Comm: "postgres", UTime: 1, CUTime: 10}, 3: {PPID: 2, Comm: "postgres", STime: 100}, 4: {PPID: 1, Comm: "etcd", UTime: 2},
		5: {PPID: 1, Comm: "redis-server", UTime: 3}, 6: {PPID: 1, Comm: "bench", UTime: 4}, 7: {PPID: 99, Comm: "postgres", UTime: 1000},
	}
	want := map[result.Metric]float64{result.PostgresCPU: 1.11e6, result.EtcdCPU: 20000, result.RedisCPU: 30000}
	require.Equal(t, want, ofServers(all, 1))
}
