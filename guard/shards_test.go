package guard_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/memory"
)

// sharded is a Runner on four databases, with one lock service.
type sharded struct {
	*guard.Shards[*memory.Tx]
	worlds [4]*world
}

func newSharded(t *testing.T) *sharded {
	s := &sharded{}
	var guards []*guard.Guard[*memory.Tx]
	locker := newWorld(t).locks.NewLocker("a")
	for i := range s.worlds {
		s.worlds[i] = newWorld(t)
		guards = append(guards, s.worlds[i].processOn(locker, nil))
	}
	var err error
	s.Shards, err = guard.NewShards(guards...)
	require.NoError(t, err)
	return s
}

// names returns two names of the same shard and one of another.
func (s *sharded) names() (a, b, other string) {
	a = "sku/0"
	for i := 1; b == "" || other == ""; i++ {
		name := fmt.Sprintf("sku/%d", i)
		if guard.ShardOf(name, 4) == guard.ShardOf(a, 4) {
			b = name
		} else {
			other = name
		}
	}
	return a, b, other
}

// The answers are those of the first version: data lies where they say.
func TestShardOf_NeverChanges(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][3]int{ // of 2, 4 and 7 shards
		"sku/42": {1, 1, 1}, "sku/43": {1, 1, 4}, "{tenant-7}/sku/1": {0, 3, 3}, "ä": {1, 3, 4},
	} {
		require.Equal(t, want, [3]int{guard.ShardOf(name, 2), guard.ShardOf(name, 4), guard.ShardOf(name, 7)}, name)
	}
	require.Zero(t, guard.ShardOf("anything", 1))
}

func TestShardOf_KeepsTagsTogetherAndMovesOnlyToNewShards(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{{"{t}/a", "b/{t}"}, {"x{t}{u}", "t"}, {"{t}", "{t"[1:]}} {
		require.Equal(t, guard.ShardOf(same[0], 997), guard.ShardOf(same[1], 997), same)
	}
	for _, whole := range [][2]string{{"{}/a", "{}/b"}, {"a{", "b{"}, {"}a{x", "}b{x"}} {
		require.NotEqual(t, guard.ShardOf(whole[0], 997), guard.ShardOf(whole[1], 997), whole)
	}
	var in [5]int
	for i := range 10_000 {
		name := fmt.Sprintf("sku/%d", i)
		of4, of5 := guard.ShardOf(name, 4), guard.ShardOf(name, 5)
		in[of5]++
		if of4 != of5 {
			require.Equal(t, 4, of5, name)
		}
	}
	for shard, n := range in {
		require.InDelta(t, 2000, n, 200, "shard %d", shard)
	}
}

func TestShards_RunOnTheShardOfTheirResources(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	a, b, other := s.names()
	require.NoError(t, guard.Do(t.Context(), s, []string{a, b}, set("k", "1")))
	require.NoError(t, guard.Do(t.Context(), s, other, set("k", "2")))
	require.NoError(t, guard.Hold(t.Context(), s, []string{b, a}, func(ctx context.Context, h guard.Runner[*memory.Tx]) error {
		return guard.Do(ctx, h, a, increment("k"))
	}))
	for i, w := range s.worlds {
		want := map[int]string{guard.ShardOf(a, 4): "2", guard.ShardOf(other, 4): "2"}[i]
		require.Equal(t, want, w.store.Read("k"), "shard %d", i)
	}
}

// What one transaction can't do is rejected before anything is locked, claimed or run.
func TestShards_RejectWhatSpansTwo(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	a, b, other := s.names()
	run := func(context.Context, *memory.Tx) error {
		t.Error("ran")
		return nil
	}
	hold := func(context.Context, guard.Runner[*memory.Tx]) error { return run(nil, nil) }
	requireAcross := func(err error, resources ...string) {
		t.Helper()
		across := new(guard.AcrossShardsError)
		require.ErrorAs(t, err, &across)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.False(t, guard.SafeToRetry(err))
		require.Equal(t, resources, across.Resources)
		for i, resource := range resources {
			require.Equal(t, guard.ShardOf(resource, 4), across.Shards[i])
		}
		require.ErrorContains(t, err, fmt.Sprintf("guard: %s belongs to shard %d and %s to shard %d: ", a, guard.ShardOf(a, 4), other, guard.ShardOf(other, 4)))
		require.ErrorContains(t, err, "same {tag}")
	}
	requireAcross(guard.Do(t.Context(), s, []string{other, b, a}, run), a, b, other)
	requireAcross(guard.Hold(t.Context(), s, []string{a, other}, hold), a, other)
	for _, w := range s.worlds {
		require.Zero(t, w.locks.Grants())
		require.Empty(t, w.kinds())
	}
	// Nor may a function wait for a lock of another shard: two could do so in a circle.
	require.NoError(t, guard.Do(t.Context(), s, a, func(ctx context.Context, _ *memory.Tx) error {
		requireAcross(guard.Do(ctx, s, other, run), a, other)
		err := guard.Do(ctx, s, b, run)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, "nested call")
		return nil
	}))
	require.NoError(t, guard.Hold(t.Context(), s, a, func(ctx context.Context, _ guard.Runner[*memory.Tx]) error {
		requireAcross(guard.Hold(ctx, s, other, hold), a, other)
		return nil
	}))
}

// lease acquires a resource with a locker of its own.
func (s *sharded) lease(t *testing.T, resource string) fence.Lease {
	t.Helper()
	lease, err := guardtest.NewLocker().Acquire(t.Context(), resource)
	require.NoError(t, err)
	return lease
}

func TestShards_UnderGrantRunsOnTheShardOfItsGrants(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	a, b, other := s.names()
	of, and, leases := s.lease(t, a), s.lease(t, b), []fence.Lease{s.lease(t, other)}
	require.NoError(t, guard.Do(t.Context(), s.UnderGrant(of.Grant(), and.Grant()), []string{a, b}, set("k", "1")))
	require.NoError(t, guard.Hold(t.Context(), s.UnderLease(leases...), other, func(ctx context.Context, h guard.Runner[*memory.Tx]) error {
		return guard.Do(ctx, h, other, set("k", "2"))
	}))
	for i, w := range s.worlds {
		want := map[int]string{guard.ShardOf(a, 4): "1", guard.ShardOf(other, 4): "2"}[i]
		require.Equal(t, want, w.store.Read("k"), "shard %d", i)
	}
}

// Grants of two shards claim in neither, whatever the call names: a fence in another database than the
// resource's own would let two holders write.
func TestShards_UnderGrantRejectsWhatSpansTwo(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	a, b, other := s.names()
	of, and := s.lease(t, a), s.lease(t, other)
	run := func(context.Context, *memory.Tx) error {
		t.Error("ran")
		return nil
	}
	for _, on := range []guard.Runner[*memory.Tx]{s.UnderGrant(of.Grant(), and.Grant()), s.UnderLease(and, of)} {
		for _, resources := range [][]string{{a}, {other}, {a, other}} {
			across := new(guard.AcrossShardsError)
			require.ErrorAs(t, guard.Do(t.Context(), on, resources, run), &across)
			require.Equal(t, []string{a, other}, across.Resources)
			require.ErrorAs(t, guard.Hold(t.Context(), on, resources, func(context.Context, guard.Runner[*memory.Tx]) error { return run(nil, nil) }), &across)
		}
	}
	for _, w := range s.worlds {
		for _, resource := range []string{a, other} {
			entries, err := w.store.Entries(t.Context(), resource, 0, 10)
			require.NoError(t, err)
			require.Empty(t, entries)
		}
	}
	require.NoError(t, guard.Do(t.Context(), s, b, func(ctx context.Context, _ *memory.Tx) error {
		across := new(guard.AcrossShardsError)
		require.ErrorAs(t, guard.Do(ctx, s.UnderGrant(and.Grant()), other, run), &across)
		require.Equal(t, []string{b, other}, across.Resources)
		return nil
	}))
}

// A Guard of its own may run a function on a name of another shard; the error says where it runs.
func TestShards_ErrorInAFunctionOfAGuardOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	guards := []*guard.Guard[*memory.Tx]{w.process("a", nil), w.process("b", nil)}
	s, err := guard.NewShards(guards...)
	require.NoError(t, err)
	shard := guard.ShardOf(sku, 2)
	require.NoError(t, guard.Do(t.Context(), guards[1-shard], sku, func(ctx context.Context, _ *memory.Tx) error {
		err := guard.Do(ctx, s, sku, set("k", "v"))
		require.EqualError(t, err, (&guard.AcrossShardsError{Resources: []string{sku, sku}, Shards: []int{1 - shard, shard}}).Error())
		return nil
	}))
}

func TestShards_CloseClosesAllUnlessAFunctionCallsIt(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	a, _, other := s.names()
	require.NoError(t, guard.Do(t.Context(), s, a, func(ctx context.Context, _ *memory.Tx) error {
		require.ErrorIs(t, s.Close(ctx), guard.ErrInvalid)
		return guard.Do(t.Context(), s, other, set("k", "v"))
	}))
	require.NoError(t, s.Close(t.Context()))
	for _, resource := range []string{a, other} {
		require.ErrorIs(t, guard.Do(t.Context(), s, resource, set("k", "v")), guard.ErrClosed)
	}
}

func TestNewShards_RejectsWhatCannotWork(t *testing.T) {
	t.Parallel()
	g := newWorld(t).process("a", nil)
	for _, guards := range [][]*guard.Guard[*memory.Tx]{nil, {nil}, {g, g}, make([]*guard.Guard[*memory.Tx], 1001)} {
		_, err := guard.NewShards(guards...)
		require.ErrorIs(t, err, guard.ErrInvalid)
	}
	for _, none := range []*guard.Shards[*memory.Tx]{nil, {}} {
		require.ErrorIs(t, guard.Do(t.Context(), none, "a", set("k", "v")), guard.ErrInvalid)
		require.ErrorIs(t, guard.Do(t.Context(), none.UnderGrant(grant(1)), sku, set("k", "v")), guard.ErrInvalid)
		require.ErrorIs(t, guard.Do(t.Context(), none.UnderLease(nil), sku, set("k", "v")), guard.ErrInvalid)
		require.ErrorIs(t, none.Close(t.Context()), guard.ErrInvalid)
	}
}
