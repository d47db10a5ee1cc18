package etcd

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// silence is a cluster with a follower that has stopped: its kernel acknowledges packets,
// and the process never answers. Locker a, whose client knows all members, holds "r", and
// its open streams lead to that follower.
type silence struct {
	a, b *Locker // b's client has only the leader
	held fence.Lease
}

func fallSilent(t *testing.T, cfg *Config) *silence {
	t.Helper()
	c := startCluster(t)
	leader := leaderAfter(t, c, nil)
	follower := anotherThan(c, leader)
	client := dial(t, follower.Endpoint())
	s := &silence{a: newTestLocker(t, client, cfg), b: newTestLocker(t, dial(t, leader.Endpoint()), cfg)}
	s.held = acquireAtLast(t, s.a, "r")
	for limit := patient(t); !renews(t, s.a); {
		require.NoError(t, limit.Err(), "no renewal succeeds")
	}
	awaitWatch(t, s.a)
	client.SetEndpoints(c.Endpoints()...) // open streams stay where they are
	require.NoError(t, follower.Pause())
	return s
}

// awaitWatch waits until etcd shows l what happens in the queue of a lock of its own.
func awaitWatch(t testing.TB, l *Locker) {
	t.Helper()
	le := acquireAtLast(t, l, "watched")
	_, err := l.cluster.Client.Delete(patient(t), keyOf(le))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, le))
}

// The holder doesn't poll, and its client sends no keep-alive probes.
func TestSilentMember_AHolderLearnsThatOthersWait(t *testing.T) {
	t.Parallel()
	s := fallSilent(t, clusterConfig(t))
	contended := make(chan struct{})
	s.held.AfterContended(func() { close(contended) })
	waiting := acquiring(patient(t), s.b, "r")
	etcdtest.Receive(t, contended)
	persistently(t, s.held.Release)
	require.NoError(t, (<-waiting).err)
}

// stuckStream blocks in Send, as when a member stops reading and the window of the stream
// is full.
type stuckStream struct{ grpc.ClientStream }

func (s stuckStream) SendMsg(any) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// The first stream gets stuck as with a silent member: at its opening, for which the
// client authenticates, or in a Send.
func TestWatch_AStreamThatIsStuckIsReplaced(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]func(context.Context, grpc.ClientStream) (grpc.ClientStream, error){
		"opening": func(ctx context.Context, _ grpc.ClientStream) (grpc.ClientStream, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"sending": func(_ context.Context, stream grpc.ClientStream) (grpc.ClientStream, error) {
			return stuckStream{stream}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := fresh(t)
			cfg.RequestTimeout = 5 * time.Second
			var opened atomic.Int32
			intercept := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				stream, err := open(ctx, desc, cc, method, opts...)
				if err == nil && method == pb.Watch_Watch_FullMethodName && opened.Add(1) == 1 {
					return stuck(ctx, stream)
				}
				return stream, err
			}
			endpoint := etcdserver.Shared(t).Endpoint()
			l := newTestLocker(t, dial(t, endpoint, grpc.WithChainStreamInterceptor(intercept)), cfg)
			contended := make(chan struct{})
			acquireAtLast(t, l, "r").AfterContended(func() { close(contended) })
			cfg.RequestTimeout = etcdtest.Patience
			acquiring(patient(t), newTestLocker(t, dial(t, endpoint), cfg), "r")
			etcdtest.Receive(t, contended)
		})
	}
}

// A renewal whose stream leads to the silent member is answered by another one.
func TestSilentMember_ARenewalIsAnsweredByAnother(t *testing.T) {
	t.Parallel()
	cfg := clusterConfig(t)
	cfg.RequestTimeout = 20 * time.Second
	s := fallSilent(t, cfg)
	require.True(t, renews(t, s.a))
}
