package etcd

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestProclaim_ReplacesTheValueAndNothingElse(t *testing.T) {
	t.Parallel()
	all := newElections(t, fresh(t), 2)
	led := campaign(t, all[0], "one")
	waiting := campaigning(patient(t), all[1], "")
	client, queue := all[0].locker.cluster.Client, all[0].locker.cluster.Keys.Queue("leader")
	before := awaitKeys(t, client, queue, 2)
	for _, value := range []string{"two", "two", "", "three"} {
		require.NoError(t, led.Proclaim(patient(t), value))
		requireLeader(t, all[1], led, value)
	}
	after := awaitKeys(t, client, queue, 2)
	require.Equal(t, before[0].Key, after[0].Key)
	require.Equal(t, before[0].CreateRevision, after[0].CreateRevision)
	require.Equal(t, before[0].Lease, after[0].Lease)
	require.Equal(t, before[1], after[1])
	require.Empty(t, waiting)
	require.NoError(t, led.Context().Err())
	require.NoError(t, led.Resign(patient(t)))
	require.ErrorIs(t, led.Proclaim(patient(t), "four"), fence.ErrReleased)
	require.NoError(t, (<-waiting).err)
}

// blind is a stream interceptor whose client gets no watch.
func blind(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == pb.Watch_Watch_FullMethodName {
		return nil, errors.New("no watch today")
	}
	return open(ctx, desc, cc, method, opts...)
}

// A leader doesn't know that its key was deleted; a later leader has proclaimed.
func TestProclaim_OfADeposedLeaderIsRejected(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	cfg := fresh(t)
	old := election(t, newTestLocker(t, dial(t, endpoint, grpc.WithChainStreamInterceptor(blind)), cfg), "leader")
	e := election(t, newTestLocker(t, dial(t, endpoint), cfg), "leader")
	for name, usurp := range map[string]func(key string){
		"the key is gone": func(string) {},
		"another of the same name": func(key string) {
			_, err := e.locker.cluster.Client.Put(patient(t), key, "")
			require.NoError(t, err)
		},
	} {
		deposed := campaign(t, old, "old")
		key := keyOf(deposed)
		_, err := e.locker.cluster.Client.Delete(patient(t), key)
		require.NoError(t, err)
		led := campaign(t, e, "new")
		usurp(key)
		require.NoError(t, deposed.Context().Err(), "it has not heard of it")
		loss := new(fence.LeaseLostError)
		require.ErrorAs(t, deposed.Proclaim(patient(t), "old again"), &loss, name)
		require.Equal(t, fence.LeaseLostError{Grant: deposed.Grant(), Reason: fence.LossDeleted}, *loss)
		require.ErrorIs(t, deposed.Context().Err(), context.Canceled, "now it knows")
		requireLeader(t, old, led, "new")
		resp, err := e.locker.cluster.Client.Get(patient(t), key)
		require.NoError(t, err)
		for _, kv := range resp.Kvs {
			require.Empty(t, kv.Value)
		}
		require.NoError(t, led.Resign(patient(t)))
		_, err = e.locker.cluster.Client.Delete(patient(t), key)
		require.NoError(t, err)
	}
}

func isProclaim(txn *pb.TxnRequest) bool {
	return len(txn.Compare) == 1 && txn.Compare[0].Target == pb.Compare_MOD
}

// proclaims is isProclaim for an interceptor.
func proclaims(req any) bool {
	txn, ok := req.(*pb.TxnRequest)
	return ok && isProclaim(txn)
}

func proclaiming(ctx context.Context, led fence.Leadership, value string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- led.Proclaim(ctx, value) }()
	return done
}

// A Proclaim of unknown outcome that arrives after a later one must not undo it.
func TestProclaim_ThatArrivesLateTakesNoEffect(t *testing.T) {
	t.Parallel()
	held := etcdtest.NewLateTxn(isProclaim)
	e := election(t, newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(held.Intercept)), fresh(t)), "leader")
	led := campaign(t, e, "0")

	held.Arm()
	err := led.Proclaim(patient(t), "lost")
	deliver := held.Kept(t)
	require.True(t, inDoubt(err))
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.NoError(t, led.Proclaim(patient(t), "1"))
	late := deliver()
	require.NotNil(t, late)
	require.False(t, late.Succeeded)
	requireLeader(t, e, led, "1")

	held.Arm()
	require.True(t, inDoubt(led.Proclaim(patient(t), "arrived")))
	deliver = held.Kept(t)
	require.True(t, deliver().Succeeded)
	requireLeader(t, e, led, "arrived")
	require.NoError(t, led.Proclaim(patient(t), "2"), "it replaces the value that it finds")
	requireLeader(t, e, led, "2")
	require.NoError(t, led.Proclaim(patient(t), "3"))
}
