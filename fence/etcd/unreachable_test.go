package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// awaitState waits until the client's connection is as said.
func awaitState(t testing.TB, client *clientv3.Client, want connectivity.State) {
	t.Helper()
	conn := client.ActiveConnection()
	conn.Connect()
	for state := conn.GetState(); state != want; state = conn.GetState() {
		require.True(t, conn.WaitForStateChange(patient(t), state), "%v, want %v", state, want)
	}
}

// requireSaysWhy requires the reason of a connection that failed. gRPC may be
// trying again just then, or have met the listener as it closed.
func requireSaysWhy(t testing.TB, err error) {
	t.Helper()
	require.NotContains(t, err.Error(), "desc =")
	require.Regexp(t, ": (dial tcp .*|the server accepted the connection and did not answer on it|error reading server preface.*|the connection is not made yet); check that a majority of etcd's members runs, and that the client's Endpoints are theirs", err.Error())
}

func TestDead_TheErrorSaysWhereAndWhy(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.RequestTimeout = 100 * time.Millisecond
	client := dial(t, "http://127.0.0.1:1")
	awaitState(t, client, connectivity.TransientFailure)
	_, err := newTestLocker(t, client, cfg).Acquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.Regexp(t, "no answer from http://127.0.0.1:1: dial tcp|no answer within 100ms from http://127.0.0.1:1: the connection is not made yet", err.Error())
	requireSaysWhy(t, err)

	endpoint := silent(t)
	client = dial(t, endpoint)
	awaitState(t, client, connectivity.Connecting)
	_, err = newTestLocker(t, client, cfg).Acquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.ErrorContains(t, err, "no answer within 100ms from "+endpoint+": the connection is not made yet; check that")
}

func TestDead_CloseSaysWhereAndWhy(t *testing.T) {
	t.Parallel()
	p := newProxy(t, etcdserver.Shared(t).Endpoint())
	client, cfg := dial(t, p.endpoint()), fresh(t)
	cfg.TTL, cfg.RequestTimeout = 20*time.Minute, time.Second
	l := newTestLocker(t, client, cfg)
	acquireAtLast(t, l, "r")
	p.set(func() { p.down = true })
	require.NoError(t, p.listener.Close())
	awaitState(t, client, connectivity.TransientFailure)
	err := l.Close(over(t))
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.Regexp(t, "no answer (in time )?from "+p.endpoint()+": ", err.Error())
	requireSaysWhy(t, err)
}

// Close ends the making of a session that an Acquire waits for.
func TestClose_WithoutEtcdEndsAnAcquireThatWaitsForASession(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	client := dial(t, silent(t), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			close(asked)
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
	l := newTestLocker(t, client, fresh(t))
	waiting := acquiring(patient(t), l, "r")
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.NoError(t, l.Close(ctx), "there is nothing to free")
	require.ErrorIs(t, (<-waiting).err, fence.ErrClosed)
}
