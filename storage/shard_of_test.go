package storage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// The answers are those of the first version: data lies where they say.
func TestShardOf_NeverChanges(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][3]int{ // of 2, 4 and 7 shards
		"sku/42": {1, 1, 1}, "sku/43": {1, 1, 4}, "{tenant-7}/sku/1": {0, 3, 3}, "ä": {1, 3, 4},
	} {
		require.Equal(t, want, [3]int{storage.ShardOf(name, 2), storage.ShardOf(name, 4), storage.ShardOf(name, 7)}, name)
	}
	require.Zero(t, storage.ShardOf("anything", 1))
}

func TestShardOf_KeepsTagsTogetherAndMovesOnlyToNewShards(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{{"{t}/a", "b/{t}"}, {"x{t}{u}", "t"}, {"{t}", "{t"[1:]}} {
		require.Equal(t, storage.ShardOf(same[0], 997), storage.ShardOf(same[1], 997), same)
	}
	for _, whole := range [][2]string{{"{}/a", "{}/b"}, {"a{", "b{"}, {"}a{x", "}b{x"}} {
		require.NotEqual(t, storage.ShardOf(whole[0], 997), storage.ShardOf(whole[1], 997), whole)
	}
	var in [5]int
	for i := range 10_000 {
		name := fmt.Sprintf("sku/%d", i)
		of4, of5 := storage.ShardOf(name, 4), storage.ShardOf(name, 5)
		in[of5]++
		if of4 != of5 {
			require.Equal(t, 4, of5, name)
		}
	}
	for shard, n := range in {
		require.InDelta(t, 2000, n, 200, "shard %d", shard)
	}
}
