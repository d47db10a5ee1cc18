package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
)

// A process that stood still finds its turn and its deadline at once.
func TestAwait_ATurnAfterTheDeadlineIsNoGrant_F3(t *testing.T) {
	t.Parallel()
	client := testenv.EtcdClient(t)
	l := newTestLocker(t, client, fresh(t))
	p := acquire(t, l, "r").(lease).place // its turn has come
	p.session.mu.Lock()
	p.session.timer.Stop()
	p.session.deadline = time.Now()
	p.session.mu.Unlock()
	lost := new(QueueLostError)
	require.ErrorAs(t, l.await(patient(t), p), &lost)
	require.Equal(t, fence.LossDeadline, lost.Reason)
	require.Error(t, p.session.ctx.Err(), "all that lives under it is lost")
}

func TestAwait_PrefersTheLossToTheTurn(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, testenv.EtcdClient(t), fresh(t))
	p := acquire(t, l, "r").(lease).place
	p.session.end(fence.LossExpired)
	for range 100 { // select picks at random
		require.Error(t, l.await(patient(t), p))
	}
}

// The session may end while the answer to the Txn is on its way.
func TestPlace_ThatEndedBeforeItsKeyWasWrittenIsNotWatched(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, testenv.EtcdClient(t), fresh(t))
	release(t, acquire(t, l, "r"))
	free, _ := l.local.tryEnter("r")
	require.True(t, free)
	p := l.newPlace(l.session, "r")
	l.session.end(fence.LossExpired)
	p.written(outcome{token: 1, first: true}, 1)
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	require.Empty(t, l.watch.ids)
	require.Empty(t, l.watch.watches)
}

func TestAcquire_FailsAtOnceWhenTheSessionEndsWhileItsTxnIsUnderWay(t *testing.T) {
	t.Parallel()
	etcd := testenv.SharedEtcd(t)
	p := newProxy(t, etcd.Endpoint())
	cfg := fresh(t)
	cfg.RequestTimeout = time.Hour
	l, admin := newTestLocker(t, dial(t, p.endpoint()), cfg), dial(t, etcd.Endpoint())
	release(t, acquire(t, l, "warm"))
	p.set(func() { p.muted = true })
	waiting := acquiring(patient(t), l, "r")
	awaitKeys(t, admin, l.keys.queue("r"), 1)
	l.session.end(fence.LossDeadline)
	lost := new(QueueLostError)
	require.ErrorAs(t, (<-waiting).err, &lost, "while etcd's answers are held back")
	require.Equal(t, QueueLostError{Resource: "r", Reason: fence.LossDeadline}, *lost)
	var again interface{ Retryable() bool }
	require.ErrorAs(t, lost, &again)
	require.True(t, again.Retryable(), "guard.Retryable queues anew")
	p.set(func() { p.muted = false })
}

// An isolated member would otherwise keep a silent watch open for ever.
func TestWatch_RequiresALeader_HD10(t *testing.T) {
	t.Parallel()
	seen := make(chan metadata.MD, 1)
	look := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if method == pb.Watch_Watch_FullMethodName {
			md, _ := metadata.FromOutgoingContext(ctx)
			seen <- md
		}
		return open(ctx, desc, cc, method, opts...)
	}
	l := newTestLocker(t, dial(t, testenv.SharedEtcd(t).Endpoint(), grpc.WithChainStreamInterceptor(look)), fresh(t))
	acquire(t, l, "r")
	require.Equal(t, []string{rpctypes.MetadataHasLeader}, (<-seen).Get(rpctypes.MetadataRequireLeaderKey))
}
