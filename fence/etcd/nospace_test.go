package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// smallEtcd starts an etcd of little space.
func smallEtcd(t testing.TB) *etcdserver.Server {
	return startEtcd(t, &etcdserver.Config{ExtraFlags: []string{"--quota-backend-bytes=2097152"}})
}

// fill uses up the space of an etcd.
func fill(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	for n := range 10000 {
		_, err := admin.Put(patient(t), fmt.Sprint("filler/", n), strings.Repeat("x", 1<<17))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		require.NoError(t, err)
	}
	require.FailNow(t, "etcd has endless space")
}

// mend applies the remedy in the error.
func mend(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	deleted, err := admin.Delete(patient(t), "filler/", clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = admin.Compact(patient(t), deleted.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = admin.Defragment(patient(t), admin.Endpoints()[0])
	require.NoError(t, err)
	_, err = admin.AlarmDisarm(patient(t), &clientv3.AlarmMember{})
	require.NoError(t, err)
}

func requireNoSpace(t testing.TB, l *Locker, resource string) {
	t.Helper()
	for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.TryAcquire, l.Acquire, l.Acquire} { // each waits until nothing is left of the one before
		_, err := acquire(patient(t), resource)
		require.ErrorIs(t, err, fence.ErrUnavailable)
		requireReason(t, err, fence.NoSpace)
		require.ErrorContains(t, err, "etcdctl alarm disarm")
	}
}

func TestNoSpace_WhatIsHeldGoesOnAndNothingIsAcquired(t *testing.T) {
	t.Parallel()
	e, cfg := smallEtcd(t), fresh(t)
	admin := dial(t, e.Endpoint())
	a, b := newTestLocker(t, dial(t, e.Endpoint()), cfg), newTestLocker(t, dial(t, e.Endpoint()), cfg)
	held, deleted, kept := acquire(t, a, "r"), acquire(t, a, "deleted"), acquire(t, a, "kept")
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, admin, a.cluster.Keys.Queue("r"), 2)
	fill(t, admin)

	requireNoSpace(t, a, "new")
	requireNoSpace(t, newTestLocker(t, dial(t, e.Endpoint()), cfg), "new") // has no session yet
	require.True(t, renews(t, a))
	_, err := admin.Delete(patient(t), keyOf(deleted))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, deleted))
	release(t, held)
	next := <-waiting
	require.NoError(t, next.err, "a waiter gets the resource")
	require.NoError(t, kept.Context().Err())
	require.True(t, a.cluster.CheckNow(patient(t)), "a restore would be noticed")
	require.NoError(t, b.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, next.lease))
	awaitKeys(t, admin, a.cluster.Keys.Prefix, 1)

	mend(t, admin)
	release(t, acquire(t, a, "new"))
	release(t, kept)
}

// etcd checks its quota before it applies a Txn, and answers "no space" after it: the key
// has been written.
func TestNoSpace_AKeyThatWasWrittenNeverthelessIsDeleted(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	armed := make(chan struct{}, 1)
	full := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if txn, ok := req.(*pb.TxnRequest); ok && etcdtest.IsAcquire(txn) {
			select {
			case <-armed:
				return rpctypes.ErrGRPCNoSpace
			default:
			}
		}
		return err
	}
	l := newTestLocker(t, dial(t, endpoint, grpc.WithChainUnaryInterceptor(full)), fresh(t))
	kept := acquire(t, l, "kept")
	armed <- struct{}{}
	_, err := l.Acquire(patient(t), "r")
	requireReason(t, err, fence.NoSpace)
	awaitKeys(t, dial(t, endpoint), l.cluster.Keys.Queue("r"), 0)
	release(t, acquire(t, l, "r"))
	require.NoError(t, kept.Context().Err())
}
