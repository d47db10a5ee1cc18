package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// slowLeases answers a renewal when the time to live that it grants is over.
type slowLeases struct{}

func (slowLeases) Grant(context.Context, time.Duration) (clientv3.LeaseID, time.Duration, error) {
	return 1, 9 * time.Second, nil
}

func (slowLeases) KeepAlive(context.Context, clientv3.LeaseID) (time.Duration, error) {
	time.Sleep(2 * time.Second)
	return 2 * time.Second, nil
}

// A process that stood still finds its turn and its deadline at once. Here the
// renewal has moved the deadline into the past; the timer, which says so, has to
// wait until the bubble is idle.
func TestAwait_ATurnAfterTheDeadlineIsNoGrant_F3(t *testing.T) {
	client, names := dial(t, "http://127.0.0.1:1"), fresh(t)
	synctest.Test(t, func(t *testing.T) {
		q := newQueues(t, client, names, 5*time.Second)
		s, err := session.Start(t.Context(), slowLeases{}, session.Config{TTL: 9 * time.Second, RequestTimeout: 5 * time.Second}, func(*session.Session) {})
		require.NoError(t, err)
		p := inTurn(t, q, s, "r")
		close(p.turn)
		awaited := make(chan error, 1)
		s.RenewNow(func() { awaited <- q.await(t.Context(), p) })
		go s.Run()
		lost := new(LostError)
		require.ErrorAs(t, <-awaited, &lost)
		require.Equal(t, fence.LossDeadline, lost.Reason)
		require.False(t, s.Attach(p), "all that lives under it is lost")
	})
}

func TestAwait_PrefersTheLossToTheTurn(t *testing.T) {
	t.Parallel()
	q := newQueues(t, etcdserver.Client(t), fresh(t), etcdtest.Patience)
	p := acquire(t, q, "r").position
	p.session.End(fence.LossExpired)
	for range 100 { // select picks at random
		require.Error(t, q.await(patient(t), p))
	}
}

// The session may end while the answer to the Txn is on its way.
func TestPosition_ThatEndedBeforeItsKeyWasWrittenIsNotWatched(t *testing.T) {
	t.Parallel()
	q := newQueues(t, etcdserver.Client(t), fresh(t), etcdtest.Patience)
	release(t, acquire(t, q, "r"))
	s := q.sessions.Current()
	p := inTurn(t, q, s, "r")
	s.End(fence.LossExpired)
	p.written(outcome{token: 1, first: true, owner: &mvccpb.KeyValue{}}, 1)
	require.False(t, q.watcher.Remove(p.follower))
}

var errTired = errors.New("tired")

// tired returns a context that has ended.
func tired(t testing.TB) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTired)
	return ctx
}

func TestWaited_SaysNothingOfOthersAtItsTurn(t *testing.T) {
	t.Parallel()
	q := newQueues(t, etcdserver.Client(t), fresh(t), etcdtest.Patience)
	p := acquire(t, q, "r").position
	require.NotErrorIs(t, p.waited(tired(t)), fence.ErrLocked, "its turn came when its context ended")
}

// Before the first list the answer that wrote the key is all there is.
func TestWaited_BeforeTheFirstListNamesTheHolder(t *testing.T) {
	t.Parallel()
	q := newQueues(t, etcdserver.Client(t), fresh(t), etcdtest.Patience)
	release(t, acquire(t, q, "r"))
	s := q.sessions.Current()
	p := inTurn(t, q, s, "r")
	s.End(fence.LossExpired) // so that nothing is watched
	p.written(outcome{token: 2, owner: &mvccpb.KeyValue{Value: []byte(`{"holder":"A"}`)}}, 1)
	err := p.waited(tired(t))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errTired)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, fence.LockedError{Resource: "r", Holder: "A"}, *locked)
}

// Between the look and the write another may come: the write itself decides.
func TestTryAcquire_DoesNotQueueWhenAnotherComesBetween(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), fresh(t)
	a, b := newQueues(t, client, names, etcdtest.Patience), newQueues(t, client, names, etcdtest.Patience)
	held := acquire(t, a, "r")
	release(t, acquire(t, b, "warm"))
	p := inTurn(t, b, b.sessions.Current(), "r")
	err := b.queueUp(patient(t), p, true)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, held.Grant().Holder, locked.Holder)
	awaitKeys(t, client, names.Queue("r"), 1)
	free, _ := b.local.tryTake("r")
	require.True(t, free, "the turn is given back")
	b.local.passOn("r")
}
