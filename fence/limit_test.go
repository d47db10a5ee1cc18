package fence_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/guardtest"
)

func TestLimit_HasSoManyHoldersAndServesWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := guardtest.NewLockService()
		limit := func() *fence.Limit {
			l, err := fence.NewLimit(service.NewLocker("process"), "api", 3)
			require.NoError(t, err)
			return l
		}
		here, there := limit(), limit()
		held, places := []fence.Lease{}, map[string]bool{}
		for range 3 {
			lease, err := here.Acquire(t.Context())
			require.NoError(t, err)
			held, places[lease.Grant().Resource] = append(held, lease), true
		}
		require.Equal(t, map[string]bool{"api/1": true, "api/2": true, "api/3": true}, places)
		_, err := there.TryAcquire(t.Context())
		require.ErrorIs(t, err, fence.ErrLocked)

		got := make(chan fence.Lease)
		go func() {
			lease, _ := there.Acquire(t.Context())
			got <- lease
		}()
		synctest.Wait()
		require.Empty(t, got)
		require.NoError(t, held[1].Release(t.Context()))
		next := <-got
		require.Equal(t, held[1].Grant().Resource, next.Grant().Resource)
		require.Greater(t, next.Grant().Token, held[1].Grant().Token)

		ctx, cancel := context.WithCancel(t.Context())
		gives := make(chan error)
		go func() {
			_, err := there.Acquire(ctx)
			gives <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-gives, context.Canceled)
		for _, lease := range []fence.Lease{held[0], held[2], next} {
			require.NoError(t, lease.Release(t.Context()))
		}
		synctest.Wait()
		for range 3 { // nothing is left of those that waited
			_, err := here.TryAcquire(t.Context())
			require.NoError(t, err)
		}
	})
}

// freed is a Locker on which all places come free while a call begins to wait for them.
type freed struct {
	*guardtest.Locker
	held []fence.Lease
}

func (l freed) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	for _, lease := range l.held {
		_ = lease.Release(context.Background())
	}
	return l.Locker.Acquire(context.WithoutCancel(ctx), resource)
}

func TestLimit_KeepsOneOfThePlacesThatComeFreeAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := guardtest.NewLocker()
		l := freed{Locker: locker}
		for _, place := range []string{"api/1", "api/2", "api/3"} {
			lease, err := locker.Acquire(t.Context(), place)
			require.NoError(t, err)
			l.held = append(l.held, lease)
		}
		limit, err := fence.NewLimit(l, "api", 3)
		require.NoError(t, err)
		_, err = limit.Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		for range 2 {
			_, err := limit.TryAcquire(t.Context())
			require.NoError(t, err)
		}
		_, err = limit.TryAcquire(t.Context())
		require.ErrorIs(t, err, fence.ErrLocked)
	})
}

func TestNewLimit_RejectsWhatIsOutOfBounds(t *testing.T) {
	t.Parallel()
	for _, holders := range []int{-1, 0, fence.MaxLimit + 1} {
		_, err := fence.NewLimit(guardtest.NewLocker(), "api", holders)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	_, err := fence.NewLimit(guardtest.NewLocker(), "a\nb", 1)
	require.ErrorIs(t, err, fence.ErrInvalid)
}
