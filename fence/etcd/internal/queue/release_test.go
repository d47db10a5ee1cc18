package queue

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// N8 (iii), etcd-io/etcd issue 22082: a key of the same name may be another holder's.
func TestRelease_NeverDeletesByNameAlone(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), fresh(t)
	q := newQueues(t, client, names, etcdtest.Patience)
	le := acquire(t, q, "r")
	_, err := client.Delete(patient(t), le.Key())
	require.NoError(t, err)
	_, err = client.Put(patient(t), le.Key(), "another one's")
	require.NoError(t, err)
	require.NoError(t, q.erase(patient(t), deletes([]*Position{le.position})...)) // Release does nothing once the loss is known
	require.Equal(t, "another one's", string(awaitKeys(t, client, names.Queue("r"), 1)[0].Value))
}

// The deletion is under way when it is made again; it arrives when a later
// acquisition has written a key of the same name.
func TestNoSpace_AWithdrawalThatArrivesLateSparesTheNextKey(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(func(txn *pb.TxnRequest) bool {
		return txn.Compare[0].Result == pb.Compare_EQUAL && etcdtest.Deletes(txn)
	})
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept))
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	first := acquire(t, q, "r")
	late.Arm()
	withdrawn := make(chan error, 1)
	go func() { withdrawn <- q.withdraw(patient(t), first.position) }()
	deliver := late.Kept(t)
	require.Error(t, etcdtest.Receive(t, withdrawn))
	require.NoError(t, q.withdraw(patient(t), first.position))
	awaitKeys(t, client, first.Key(), 0)
	release(t, first)
	second := acquire(t, q, "r")
	require.Equal(t, first.Key(), second.Key(), "or this shows nothing")
	require.NotNil(t, deliver())
	awaitKeys(t, client, second.Key(), 1)
	require.NoError(t, context.Cause(second.Context()))
}

// An answer that is lost proves nothing: the deletion is made again before Release returns.
func TestRelease_InDoubtIsRepeated(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.Deletes)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept))
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	le, kept := acquire(t, q, "r"), acquire(t, q, "kept")
	late.Arm()
	release(t, le)
	resp, err := client.Get(patient(t), le.Key())
	require.NoError(t, err)
	require.Empty(t, resp.Kvs)
	require.NotNil(t, late.Kept(t)())
	require.NoError(t, kept.Context().Err())
}
