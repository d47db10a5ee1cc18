package run

import (
	"testing"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
)

func TestTree_SumsDescendants(t *testing.T) {
	all := map[int]procfs.ProcStat{1: {UTime: 100, CUTime: 7}, 2: {PPID: 1, STime: 15}, 3: {PPID: 2, UTime: 1}, 4: {PPID: 1, CSTime: 1000}}
	require.InDelta(t, 0.16, tree(all, 2), 1e-9)
	require.InDelta(t, 11.23, tree(all, 1), 1e-9)
	require.Zero(t, tree(all, 99))
}
