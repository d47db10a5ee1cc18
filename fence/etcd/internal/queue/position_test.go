package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
func TestAwait_ATurnAfterTheDeadlineIsNoGrant(t *testing.T) {
	client, names := dial(t, "http://127.0.0.1:1"), fresh(t)
	synctest.Test(t, func(t *testing.T) {
		q := newQueues(t, client, names, 5*time.Second)
		s, err := session.Start(t.Context(), slowLeases{}, session.Config{TTL: 9 * time.Second, RequestTimeout: 5 * time.Second}, func(*session.Session) {})
		require.NoError(t, err)
		p := inTurn(t, q, s, "r")
		p.line.mu.Lock()
		p.first = true
		p.line.mu.Unlock()
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
	p.lose(fence.LossDeleted)
	require.Error(t, q.await(patient(t), p))
}

var errTired = errors.New("tired")

// tired returns a context that has ended.
func tired(t testing.TB) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTired)
	return ctx
}

// Between the look and the write another may come: the write itself decides.
func TestTryAcquire_DoesNotQueueWhenAnotherComesBetween(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), fresh(t)
	a, b := newQueues(t, client, names, etcdtest.Patience), newQueues(t, client, names, etcdtest.Patience)
	held := acquire(t, a, "r")
	release(t, acquire(t, b, "warm"))
	p := inTurn(t, b, b.sessions.Current(), "r")
	err := b.claimOne(patient(t), p)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, held.Grant().Holder, locked.Holder)
	awaitKeys(t, client, names.Queue("r"), 1)
	b.abandon(p)
	require.Nil(t, b.Current("r"), "the place is given back")
}
