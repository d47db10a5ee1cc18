package guardtest_test

import (
	"context"
	"errors"
	"sync/atomic"
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

func TestLocker_FailsOnDemand(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker()
	failure := errors.New("no leader")
	l.Service().Fail(failure)
	for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.Acquire, l.TryAcquire} {
		_, err := acquire(t.Context(), sku)
		require.ErrorIs(t, err, fence.ErrUnavailable)
		require.ErrorIs(t, err, failure)
		_, err = acquire(t.Context(), "")
		require.ErrorAs(t, err, new(*fence.InvalidGrantError))
	}
}

func TestLocker_AfterContendedCallsOnceForOtherProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := guardtest.NewLockService()
		l := s.NewLocker("a")
		require.False(t, s.Contend(sku))
		lease := acquire(t, l)
		var calls atomic.Int32
		count := func() { calls.Add(1) }
		called := func(want int32, why string) {
			synctest.Wait()
			require.Equal(t, want, calls.Load(), why)
		}
		lease.AfterContended(count)
		stop := lease.AfterContended(count)
		require.True(t, stop())
		require.False(t, stop())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, sku)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		called(0, "waiters of the same process don't count")
		require.True(t, s.Contend(sku))
		require.True(t, s.Contend(sku))
		called(1, "once")
		require.False(t, lease.AfterContended(count)())
		called(2, "at once if another waits already")
		require.NoError(t, lease.Release(t.Context()))
		require.False(t, lease.AfterContended(count)())
		called(2, "not after the end")
	})
}
