package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/queue"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestRelease_ASecondCallDoesNothing(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	first := acquire(t, l, "r")
	release(t, first)
	second := acquire(t, l, "r")
	release(t, first)
	require.NoError(t, second.Context().Err())
	require.Equal(t, keyOf(second), string(awaitKeys(t, client, l.cluster.Keys.Queue("r"), 1)[0].Key))
}

func TestRelease_EndsTheContextEvenIfItsOwnIsOver(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	le := acquire(t, l, "r")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, le.Release(over), context.Canceled)
	require.ErrorIs(t, context.Cause(le.Context()), fence.ErrReleased)
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 0)
	require.NoError(t, le.Release(over))
	release(t, acquire(t, l, "r"))
}

func TestLoss_ADeletedKeyEndsTheLease(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	le, other := acquire(t, l, "r"), acquire(t, l, "other")
	_, err := client.Delete(patient(t), keyOf(le))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, le))
	require.NoError(t, other.Context().Err(), "the session lives on")
	again := acquire(t, l, "r")
	require.Greater(t, again.Grant().Token, le.Grant().Token)
}

func TestLoss_ARevokedLeaseEndsAll(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	a, b := acquire(t, l, "a"), acquire(t, l, "b")
	old := l.sessions.Current().ID
	_, err := client.Revoke(patient(t), old)
	require.NoError(t, err)
	require.Equal(t, fence.LossExpired, lossOf(t, a))
	require.Equal(t, fence.LossExpired, lossOf(t, b))
	again := acquire(t, l, "a")
	require.NotEqual(t, old, l.sessions.Current().ID, "a new session")
	require.NoError(t, again.Context().Err())
}

// The Acquire itself may be what finds out that the lease is gone.
func TestAcquire_MakesANewSessionWhenItFindsTheOldOneGone(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	release(t, acquire(t, l, "r")) // now nothing is watched
	old := l.sessions.Current().ID
	_, err := client.Revoke(patient(t), old)
	require.NoError(t, err)
	le := acquire(t, l, "r")
	require.NotEqual(t, old, l.sessions.Current().ID)
	require.NoError(t, le.Context().Err())
}

func TestAcquire_FailsWhenItsQueuePositionIsLost(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	for reason, inject := range map[fence.LossReason]func(kv *mvccpb.KeyValue) error{
		fence.LossDeleted: func(kv *mvccpb.KeyValue) error {
			_, err := client.Delete(patient(t), string(kv.Key))
			return err
		},
		fence.LossExpired: func(kv *mvccpb.KeyValue) error {
			_, err := client.Revoke(patient(t), clientv3.LeaseID(kv.Lease))
			return err
		},
	} {
		held := acquire(t, a, "r")
		waiting := acquiring(patient(t), b, "r")
		kvs := awaitKeys(t, client, a.cluster.Keys.Queue("r"), 2)
		require.NoError(t, inject(kvs[1]))
		err := (<-waiting).err
		require.ErrorIs(t, err, fence.ErrUnavailable)
		lost := new(queue.LostError)
		require.ErrorAs(t, err, &lost)
		require.Equal(t, queue.LostError{Resource: "r", Reason: reason}, *lost)
		release(t, held)
		release(t, acquire(t, b, "r"))
	}
}

func TestAfterContended_RunsWhenAnotherLockerWaits(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	called := make(chan string, 10)
	stopped := held.AfterContended(func() { called <- "stopped" })
	require.True(t, stopped())
	require.False(t, stopped())
	stop := held.AfterContended(func() { called <- "before" })
	waiting := acquiring(patient(t), b, "r")
	require.Equal(t, "before", etcdtest.Receive(t, called))
	require.False(t, stop(), "it has been called")
	held.AfterContended(func() { called <- "at once" })
	require.Equal(t, "at once", etcdtest.Receive(t, called))
	release(t, held)
	next := (<-waiting).lease
	held.AfterContended(func() { called <- "after the end" })
	stop = next.AfterContended(func() { called <- "without a waiter" })
	release(t, next)
	require.False(t, stop(), "the end took it back already")
	require.Empty(t, called, "each is called once, and none after the end")
}

func TestAfterContended_SeesAWaiterThatCameBeforeTheGrant(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b, c := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	second := acquiring(patient(t), b, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 2)
	third := acquiring(patient(t), c, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 3)
	release(t, held)
	got := <-second
	require.NoError(t, got.err)
	called := make(chan struct{})
	got.lease.AfterContended(func() { close(called) })
	etcdtest.Receive(t, called)
	release(t, got.lease)
	require.NoError(t, (<-third).err)
}

func TestClose_EndsAndFreesEverything(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l, other := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held, theirs := acquire(t, l, "r"), acquire(t, other, "theirs")
	local := acquiring(patient(t), l, "r")
	remote := acquiring(patient(t), l, "theirs")
	awaitKeys(t, client, l.cluster.Keys.Queue("theirs"), 2)
	id := l.sessions.Current().ID
	require.NoError(t, l.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, held))
	require.ErrorIs(t, (<-local).err, fence.ErrClosed)
	require.ErrorIs(t, (<-remote).err, fence.ErrClosed)
	ttl, err := client.TimeToLive(patient(t), id)
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl.TTL, "the lease is revoked, the client still works")

	_, err = l.Acquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrClosed)
	_, err = l.TryAcquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrClosed)
	require.NoError(t, l.Close(patient(t)))
	require.NoError(t, theirs.Context().Err())
	require.Zero(t, l.GrantedTTL())
}
