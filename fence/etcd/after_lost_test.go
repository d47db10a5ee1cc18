package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestAfterLost_RunsWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), fresh(t))
	held := acquire(t, l, "r")
	require.NoError(t, held.Err())
	called := make(chan error, 2)
	tell := func() { called <- held.Err() }
	held.AfterLost(tell)
	held.AfterLost(tell)
	require.NoError(t, l.Close(patient(t)))
	for range 2 {
		loss := new(fence.LeaseLostError)
		require.ErrorAs(t, etcdtest.Receive(t, called), &loss)
		require.Equal(t, fence.LeaseLostError{Grant: held.Grant(), Reason: fence.LossClosed}, *loss)
	}
	held.AfterLost(tell)
	require.ErrorIs(t, etcdtest.Receive(t, called), fence.ErrLeaseLost, "at once")
}

func TestAfterLost_DoesNotRunAfterARelease(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), fresh(t))
	held, next := acquire(t, l, "r"), acquire(t, l, "another")
	called := make(chan string, 2)
	held.AfterLost(func() { called <- "released" })
	release(t, held)
	require.ErrorIs(t, held.Err(), fence.ErrReleased)
	held.AfterLost(func() { called <- "afterwards" })
	next.AfterLost(func() { called <- "lost" })
	require.NoError(t, l.Close(patient(t)))
	require.Equal(t, "lost", etcdtest.Receive(t, called))
	require.Empty(t, called)
}
