package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

// over returns a context that has ended, as that of signal.NotifyContext has when a program stops.
func over(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func requireGone(t testing.TB, client *clientv3.Client, id clientv3.LeaseID) {
	t.Helper()
	ttl, err := client.TimeToLive(patient(t), id)
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl.TTL, "the lease is revoked")
}

// A program that stops releases and closes with a context that has ended. The
// next one must not have to wait for the time to live.
func TestClose_WithAnEndedContextFreesEverything(t *testing.T) {
	t.Parallel()
	l, client := locker(t)
	released, held := acquire(t, l, "released"), acquire(t, l, "held")
	id := l.sessions.Current().ID
	require.ErrorIs(t, released.Release(over(t)), context.Canceled)
	_, err := l.Acquire(over(t), "new")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, fence.ErrUnavailable)
	require.NoError(t, l.Close(over(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, held))
	requireGone(t, client, id)
	resp, err := client.Get(patient(t), l.cluster.Keys.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, resp.Count)
	require.NoError(t, l.Close(over(t)))
}

func TestClose_WithAnEndedContextWaitsForASessionInTheMaking(t *testing.T) {
	t.Parallel()
	asked, proceed := make(chan struct{}), make(chan struct{})
	endpoint := etcdserver.Shared(t).Endpoint()
	granted := make(chan clientv3.LeaseID, 1)
	client := dial(t, endpoint, etcdtest.OnUnary(pb.Lease_LeaseGrant_FullMethodName, func(ctx context.Context, _, reply any, send func() error) error {
		close(asked)
		err := send()
		granted <- clientv3.LeaseID(reply.(*pb.LeaseGrantResponse).ID)
		select {
		case <-proceed:
			return err
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "the answer is lost")
		}
	}))
	l, admin := newTestLocker(t, client, fresh(t)), dial(t, endpoint)
	waiting := acquiring(patient(t), l, "r")
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- l.Close(over(t)) }()
	<-l.closing.Closed()
	close(proceed)
	require.NoError(t, <-closed)
	require.ErrorIs(t, (<-waiting).err, fence.ErrClosed)
	requireGone(t, admin, <-granted)
}

// Close without a deadline takes no longer than the leases live, and ends everything: a lock that is held, a call
// that waits, one that acquires, and a release.
func TestClose_ReturnsWhileEtcdIsSilent(t *testing.T) {
	t.Parallel()
	e, cfg := ownEtcd(t), fresh(t)
	cfg.TTL, cfg.requestTimeout = etcdtest.Patience, etcdtest.Patience
	client := dial(t, e.Endpoint())
	acquire(t, newTestLocker(t, client, cfg), "theirs")
	cfg.TTL, cfg.requestTimeout = 15*time.Second, 5*time.Second
	l := newTestLocker(t, client, cfg)
	held, released := acquireAtLast(t, l, "held"), acquireAtLast(t, l, "released")
	waiting := queued(t, l, "theirs", 2)
	require.NoError(t, e.Pause())
	require.ErrorIs(t, released.Release(over(t)), context.Canceled)
	failing := acquiring(patient(t), l, "new")

	closed, stopped := make(chan error, 1), make(chan struct{})
	go func() { closed <- l.Close(context.Background()) }()
	requireReason(t, etcdtest.Receive(t, closed), fence.Unreachable)
	// Its own deadline may have come first.
	require.Contains(t, []fence.LossReason{fence.LossClosed, fence.LossDeadline}, lossOf(t, held))
	require.Error(t, (<-waiting).err)
	require.Error(t, (<-failing).err)
	go func() {
		l.cluster.Tasks.Stop()
		close(stopped)
	}()
	etcdtest.Receive(t, stopped)
}
