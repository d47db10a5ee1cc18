package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
)

// The answer to a session's first request comes when Close no longer waits for
// it: nothing is granted, and no session goes on.
func TestClose_AgainstASessionInTheMakingGrantsNothing(t *testing.T) {
	t.Parallel()
	granted, goOn := make(chan struct{}), make(chan struct{})
	client := dial(t, testenv.SharedEtcd(t).Endpoint(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if _, ok := req.(*pb.LeaseGrantRequest); ok {
				close(granted)
				<-goOn
			}
			return err
		}))
	l := newTestLocker(t, client, fresh(t))
	got := acquiring(patient(t), l, "r")
	<-granted
	closing, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- l.Close(closing) }()
	require.Eventually(t, l.isClosed, patience, time.Millisecond)
	cancel()
	require.Eventually(t, func() bool { // Close has given up waiting
		l.tasks.mu.Lock()
		defer l.tasks.mu.Unlock()
		return l.tasks.stopped
	}, patience, time.Millisecond)
	close(goOn)
	require.ErrorIs(t, (<-got).err, fence.ErrLockerClosed)
	<-closed
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Nil(t, l.session)
}
