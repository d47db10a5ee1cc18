package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat_TakesTheNameAsItComes(t *testing.T) {
	p, err := parseStat("42 (a) b (c)) S 7 1 1 0 -1 4194560 1 2 3 4 100 50 20 30 20 0 1 0 5 6 7")
	require.NoError(t, err)
	require.Equal(t, process{parent: 7, own: 1500 * time.Millisecond, reaped: 500 * time.Millisecond}, p)
	_, err = parseStat("42 (a) S 7")
	require.Error(t, err)
}

func TestTree_SumsDescendants(t *testing.T) {
	all := map[int]process{
		1: {pid: 1, own: 100},
		2: {pid: 2, parent: 1, own: 10, reaped: 5},
		3: {pid: 3, parent: 2, own: 1},
		4: {pid: 4, parent: 1, own: 1000},
	}
	require.Equal(t, time.Duration(16), tree(all, 2))
	require.Equal(t, time.Duration(1116), tree(all, 1))
	require.Zero(t, tree(all, 99))
}

func TestParseMachine_CountsStolenTimeAsBusy(t *testing.T) {
	busy, total, err := parseMachine("cpu  10 0 5 80 20 1 1 3 0 0\ncpu0 1 1")
	require.NoError(t, err)
	require.Equal(t, 20*tick, busy)
	require.Equal(t, 120*tick, total)
	_, _, err = parseMachine("intr 1 2 3")
	require.Error(t, err)
}
