package queue

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

func TestLocalQueue_ServesInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLocalQueue()
		require.NoError(t, q.wait(t.Context(), "r"))
		var order []int
		for i := range 5 {
			go func() {
				if q.wait(t.Context(), "r") == nil {
					order = append(order, i)
				}
			}()
			synctest.Wait()
		}
		require.True(t, q.waited("r"))
		for range 5 {
			q.passOn("r")
			synctest.Wait()
		}
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
		q.passOn("r")
		require.Empty(t, q.turns)
	})
}

func TestLocalQueue_ResourcesDontWaitForEachOther(t *testing.T) {
	q := newLocalQueue()
	require.NoError(t, q.wait(t.Context(), "a"))
	require.NoError(t, q.wait(t.Context(), "b"))
	free, _ := q.tryTake("a")
	require.False(t, free)
}

func TestLocalQueue_ACancelledWaiterIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLocalQueue()
		require.NoError(t, q.wait(t.Context(), "r"))
		ctx, cancel := context.WithCancel(t.Context())
		cancelled, served := make(chan error, 1), make(chan error, 1)
		go func() { cancelled <- q.wait(ctx, "r") }()
		synctest.Wait()
		go func() { served <- q.wait(t.Context(), "r") }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-cancelled, context.Canceled)
		q.passOn("r")
		require.NoError(t, <-served)
	})
}

// The turn may come at the moment when its waiter gives up.
func TestLocalQueue_ATurnThatComesTooLateIsPassedOn(t *testing.T) {
	q := newLocalQueue()
	require.NoError(t, q.wait(t.Context(), "r"))
	mine := make(chan struct{})
	q.turns["r"].waiting = append(q.turns["r"].waiting, mine)
	q.passOn("r")
	<-mine
	q.giveUp("r", mine)
	free, _ := q.tryTake("r")
	require.True(t, free)
}

func TestLocalQueue_CloseEndsTheWaiting(t *testing.T) {
	q := newLocalQueue()
	require.NoError(t, q.wait(t.Context(), "r"))
	close(q.closed)
	require.ErrorIs(t, q.wait(t.Context(), "r"), fence.ErrClosed)
}
