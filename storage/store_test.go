package storage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// The one rule of rejections in Go: what the seal of storage/memory rejects, and what
// storage/postgres finds behind a serialization failure.
func TestCheck_JudgesAsTheSealDoes(t *testing.T) {
	claim := storage.Claim{Grant: fence.Grant{Epoch: 2, Token: 5, Holder: "a"}, Position: storage.Position{Seq: 7, Tx: 70}}
	for want, fences := range map[storage.Reason][]storage.Claim{
		"":                      {claim},
		storage.ReasonStale:     {{Grant: fence.Grant{Epoch: 2, Token: 6, Holder: "b"}}, {Grant: fence.Grant{Epoch: 3, Token: 1, Holder: "b"}}},
		storage.ReasonCollision: {{Grant: fence.Grant{Epoch: 2, Token: 5, Holder: "b"}, Position: claim.Position}},
		storage.ReasonOvertaken: {{Grant: claim.Grant, Position: storage.Position{Seq: 8, Tx: 80}}},
		storage.ReasonWentBack: {
			{Grant: claim.Grant, Position: storage.Position{Seq: 6, Tx: 60}},
			{Grant: claim.Grant, Position: storage.Position{Seq: 7, Tx: 71}},
			{Grant: fence.Grant{Epoch: 2, Token: 4, Holder: "z"}, Position: storage.Position{Seq: 9, Tx: 90}},
			{Grant: fence.Grant{Epoch: 1, Token: 9, Holder: "z"}, Position: storage.Position{Seq: 9, Tx: 90}},
		},
	} {
		for _, f := range fences {
			require.Equal(t, want, claim.Check(f.Grant, f.Position), "%+v", f)
		}
	}
}

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
