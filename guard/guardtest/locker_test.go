package guardtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/guardtest"
)

const sku = "sku/42"

func acquire(t *testing.T, l *guardtest.Locker) fence.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), sku)
	require.NoError(t, err)
	return lease
}

func TestLocker_TokensIncreaseAndHoldersDiffer(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker()
	var last fence.Grant
	for i := range 5 {
		if i == 3 {
			l.Service().SetEpoch(3)
			l.Service().SetToken(7)
		}
		lease := acquire(t, l)
		g := lease.Grant()
		require.NoError(t, g.Validate())
		require.Positive(t, g.Compare(last))
		require.NotEqual(t, last.Holder, g.Holder)
		require.Equal(t, g, l.Service().Holder(sku))
		last = g
		require.NoError(t, lease.Release(t.Context()))
	}
	require.EqualValues(t, 8, last.Token)
	require.EqualValues(t, 3, last.Epoch)
	require.Equal(t, 5, l.Service().Grants())
	require.Zero(t, l.Service().Holder(sku))
}

// A test that runs once more on the database of the last time is not rejected.
func TestLocker_LaterServicesGrantHigherTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := acquire(t, guardtest.NewLocker()).Grant()
		same := acquire(t, guardtest.NewLocker()).Grant()
		require.NotEqual(t, first.Holder, same.Holder, "the fence tells services apart that began at the same time")
		time.Sleep(time.Millisecond)
		later := acquire(t, guardtest.NewLocker()).Grant()
		require.NoError(t, later.Validate())
		require.Greater(t, later.Token, first.Token)
		require.Less(t, later.Token, fence.MaxToken/100, "there is room for a few millennia")
	})
}

// As fence.Lease has it: the release goes on when its context has ended, and needs none.
func TestLocker_ReleasesWhateverItsContext(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, want := range map[context.Context]error{ended: context.Canceled, nil: nil} {
		lease := acquire(t, l)
		require.ErrorIs(t, lease.Release(ctx), want)
		require.NoError(t, lease.Release(ctx), "a second call")
		require.ErrorIs(t, context.Cause(lease.Context()), fence.ErrReleased)
		require.Zero(t, l.Service().Holder(sku))
	}
	lost := acquire(t, l)
	require.True(t, l.Service().Lose(sku))
	require.NoError(t, lost.Release(ended), "there is nothing to release")
}

func TestLocker_TryAcquireDoesNotWait(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker()
	lease, err := l.TryAcquire(t.Context(), sku)
	require.NoError(t, err)
	_, err = l.TryAcquire(t.Context(), sku)
	require.ErrorIs(t, err, fence.ErrLocked)
	var locked *fence.LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, lease.Grant().Holder, locked.Holder)
	require.NoError(t, lease.Release(t.Context()))
	require.Zero(t, l.Service().Holder(sku), "the failed try left nothing in the queue")
}
