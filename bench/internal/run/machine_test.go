package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat_TakesTheNameAsItComes(t *testing.T) {
	p, err := parseStat("42 (a) b (c)) S 7 1 1 0 -1 4194560 1 2 3 4 100 50 20 30 20 0 1 0 5 6 7")
	require.NoError(t, err)
	require.Equal(t, process{name: "a) b (c)", parent: 7, used: 2 * time.Second}, p)
	_, err = parseStat("42 (a) S 7")
	require.Error(t, err)
}

func TestTree_SumsDescendants(t *testing.T) {
	all := map[int]process{1: {used: 100}, 2: {parent: 1, used: 15}, 3: {parent: 2, used: 1}, 4: {parent: 1, used: 1000}}
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
