package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// slowAnswer delays one answer to requests of one method.
type slowAnswer struct {
	method string
	armed  chan struct{} // has room for one answer to hold back
	came   chan struct{} // receives when the answer has arrived
	pass   chan struct{} // closed to let it pass
}

func dialSlow(t testing.TB, method string) (*clientv3.Client, *slowAnswer) {
	t.Helper()
	s := &slowAnswer{method: method, armed: make(chan struct{}, 1), came: make(chan struct{}, 1), pass: make(chan struct{})}
	return dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(s.intercept)), s
}

func (s *slowAnswer) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if method != s.method {
		return err
	}
	select {
	case <-s.armed:
		s.came <- struct{}{}
		select {
		case <-s.pass:
		case <-ctx.Done():
		}
	default:
	}
	return err
}

// The answer to an acquisition arrives after that to a later one, whose revision is higher:
// etcd has not gone back.
func TestWentBack_ALateTxnAnswerIsNoOlderState(t *testing.T) {
	t.Parallel()
	client, slow := dialSlow(t, pb.KV_Txn_FullMethodName)
	l := newTestLocker(t, client, fresh(t))
	kept := acquire(t, l, "kept")
	slow.armed <- struct{}{}
	first := acquiring(patient(t), l, "first")
	etcdtest.Receive(t, slow.came)
	second := acquire(t, l, "second")
	close(slow.pass)
	got := etcdtest.Receive(t, first)
	require.NoError(t, got.err)
	require.Less(t, got.lease.Grant().Token, second.Grant().Token)
	for _, le := range []fence.Lease{kept, second, got.lease} {
		require.NoError(t, context.Cause(le.Context()))
	}
}

// The same for the lease of a new session.
func TestWentBack_ALateLeaseAnswerIsNoOlderState(t *testing.T) {
	t.Parallel()
	client, slow := dialSlow(t, pb.Lease_LeaseGrant_FullMethodName)
	l := newTestLocker(t, client, fresh(t))
	slow.armed <- struct{}{}
	waiting := acquiring(patient(t), l, "r")
	etcdtest.Receive(t, slow.came)
	_, err := client.Put(patient(t), l.cluster.Keys.Prefix+"/later", "")
	require.NoError(t, err)
	require.True(t, l.cluster.CheckNow(patient(t)))
	close(slow.pass)
	require.NoError(t, etcdtest.Receive(t, waiting).err)
}
