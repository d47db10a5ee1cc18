package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// The answer to a session's first request arrives after Close has stopped waiting for it:
// nothing is granted, and no session goes on.
func TestClose_AgainstASessionInTheMakingGrantsNothing(t *testing.T) {
	t.Parallel()
	granted := make(chan struct{})
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if _, ok := req.(*pb.LeaseGrantRequest); ok {
				close(granted)
				<-ctx.Done() // when Close has given up waiting
			}
			return err
		}))
	l := newTestLocker(t, client, fresh(t))
	got := acquiring(patient(t), l, "r")
	<-granted
	closing, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- l.Close(closing) }()
	<-l.queues.Closed()
	cancel()
	require.ErrorIs(t, (<-got).err, fence.ErrClosed)
	<-closed
	require.Nil(t, l.sessions.Current())
}
