package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
)

func at(epoch, token int64, holder string) inspect.Acquisition {
	return inspect.Acquisition{Grant: fence.Grant{Resource: "r", Epoch: epoch, Token: fence.Token(token), Holder: holder}}
}

func TestDrift_ComparesTheQueueWithTheFence(t *testing.T) {
	t.Parallel()
	of := func(epoch, token int64, holder string) *fenceState {
		return &fenceState{Epoch: epoch, Token: fence.Token(token), Holder: holder}
	}
	queue := []inspect.Acquisition{at(1, 5, "a"), at(1, 7, "b")}
	require.Equal(t, driftUnclaimed, drift(queue, nil))
	require.Equal(t, driftUnclaimed, drift(queue, of(1, 4, "old")))
	require.Empty(t, drift(queue, of(1, 5, "a")))
	require.Empty(t, drift(queue, of(1, 7, "b")), "the key of a is being deleted")
	require.Equal(t, driftCollision, drift(queue, of(1, 5, "c")))
	require.Equal(t, driftAhead, drift(queue, of(1, 6, "c")))
	require.Equal(t, driftAhead, drift(queue, of(2, 1, "c")))
}

// The fence was read after the lock was released, or passed on.
func TestAheadOf_TakesLaterGrantsForWhatTheyAre(t *testing.T) {
	t.Parallel()
	f := &fenceState{Epoch: 1, Token: 7, Holder: "b"}
	now := inspect.Locks{Epoch: 1, Revision: 9}
	require.False(t, aheadOf(now, "r", f), "released")
	now.Queues = []inspect.Lock{{Resource: "r", Queue: []inspect.Acquisition{at(1, 7, "b")}}}
	require.False(t, aheadOf(now, "r", f))
	now.Queues[0].Queue[0] = at(1, 8, "c")
	require.False(t, aheadOf(now, "r", f), "not claimed yet")
	now.Queues[0].Queue[0] = at(1, 6, "a")
	require.True(t, aheadOf(now, "r", f))
	require.True(t, aheadOf(inspect.Locks{Epoch: 1, Revision: 6}, "r", f))
}
