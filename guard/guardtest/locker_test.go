package guardtest_test

import (
	"context"
	"errors"
	"sync"
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

func TestLocker_OneHolderAtATimeInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := guardtest.NewLockService()
		lockers := []*guardtest.Locker{s.NewLocker("a"), s.NewLocker("b")}
		holding := 0
		var order []int
		var done sync.WaitGroup
		for i := range 10 {
			done.Go(func() {
				lease := acquire(t, lockers[i%2])
				holding++
				require.Equal(t, 1, holding)
				order = append(order, i)
				time.Sleep(time.Millisecond)
				holding--
				require.NoError(t, lease.Release(t.Context()))
			})
			synctest.Wait()
		}
		done.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order)
	})
}

func TestLocker_CancelledWaiterLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := guardtest.NewLocker()
		lease := acquire(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			_, err := l.Acquire(ctx, sku)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.NoError(t, lease.Release(t.Context()))
		require.Zero(t, l.Service().Holder(sku))
		require.NotNil(t, acquire(t, l))
	})
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

func TestLocker_LostLeaseSaysSoAndTheNextIsGranted(t *testing.T) {
	t.Parallel()
	s := guardtest.NewLockService()
	require.False(t, s.Lose(sku))
	a := acquire(t, s.NewLocker("a"))
	granted := make(chan fence.Lease)
	go func() { granted <- acquire(t, s.NewLocker("b")) }()
	contended := make(chan struct{})
	a.AfterContended(func() { close(contended) })
	<-contended
	require.True(t, s.Lose(sku))
	<-a.Done()
	var lost *fence.LeaseLostError
	require.ErrorAs(t, context.Cause(a.Context()), &lost)
	require.Equal(t, fence.LeaseLostError{Grant: a.Grant(), Reason: fence.LossExpired}, *lost)
	b := <-granted
	require.NoError(t, a.Release(t.Context()))
	require.Equal(t, b.Grant(), s.Holder(sku), "releasing a lost lease touches no later holder's")
}

func TestLocker_AfterLostCallsWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := guardtest.NewLockService()
		calls := make(chan error, 3)
		for range 2 {
			lease := acquire(t, s.NewLocker("a"))
			require.NoError(t, lease.Err())
			lease.AfterLost(func() { calls <- lease.Err() })
			synctest.Wait()
			require.Empty(t, calls)
			require.True(t, s.Lose(sku))
			require.ErrorIs(t, <-calls, fence.ErrLeaseLost)
			lease.AfterLost(func() { calls <- lease.Err() })
			require.ErrorIs(t, <-calls, fence.ErrLeaseLost)
		}
		lease := acquire(t, s.NewLocker("a"))
		lease.AfterLost(func() { calls <- lease.Err() })
		require.NoError(t, lease.Release(t.Context()))
		require.ErrorIs(t, lease.Err(), fence.ErrReleased)
		lease.AfterLost(func() { calls <- lease.Err() })
		synctest.Wait()
		require.Empty(t, calls, "a release is no loss")
	})
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
