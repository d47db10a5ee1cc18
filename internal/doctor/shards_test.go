package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExamine_FindsShardsThatDisagree(t *testing.T) {
	t.Parallel()
	first, second := newPatient(t), newPatient(t)
	examine := func() (ids, seen []string) {
		r := Examine(t.Context(), nil, []Database{{Name: "db1", Pool: first.pool, Schema: "fence"}, {Name: "db2", Pool: second.pool, Schema: "fence"}}, Limits{})
		r.Ignore([]string{"durability-off"})
		for _, f := range r.Findings {
			require.Equal(t, "db2", f.Server)
			seen = append(seen, f.Seen)
		}
		return idsOf(r.Findings), seen
	}
	for _, c := range []struct{ one, other, seen string }{
		{"null", "null", ""},
		{"'0 of 2, rule 1'", "'1 of 2, rule 1'", ""},
		{"'north'", "'south'", ""},
		{"'0 of 2, rule 1'", "'0 of 2, rule 1'", "db1 is shard 0 of 2, rule 1; db2 is shard 0 of 2, rule 1"},
		{"'0 of 2, rule 1'", "'1 of 3, rule 1'", "db1 is shard 0 of 2, rule 1; db2 is shard 1 of 3, rule 1"},
		{"'0 of 2, rule 1'", "'1 of 2, rule 2'", "db1 is shard 0 of 2, rule 1; db2 is shard 1 of 2, rule 2"},
		{"null", "'1 of 2, rule 1'", "db1 is no shard; db2 is shard 1 of 2, rule 1"},
	} {
		first.sql("update fence.setting set shard = " + c.one)
		second.sql("update fence.setting set shard = " + c.other)
		ids, seen := examine()
		if c.seen == "" {
			require.Empty(t, ids, c)
			continue
		}
		require.Equal(t, []string{"shards-disagree"}, ids, c)
		require.Equal(t, []string{c.seen}, seen)
	}
}
