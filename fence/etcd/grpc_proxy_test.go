package etcd

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// startGRPCProxy starts etcd's grpc-proxy in front of e.
func startGRPCProxy(t testing.TB, e *etcdserver.Server) *etcdserver.Server {
	t.Helper()
	p, err := etcdserver.StartProxy(patient(t), e)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), etcdtest.Patience)
		defer cancel()
		require.NoError(t, p.Stop(ctx))
	})
	return p
}

// mixedUp is a watch stream whose first two watches get each other's events.
type mixedUp struct {
	grpc.ClientStream
	ids []int64
}

func (s *mixedUp) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch resp := m.(*pb.WatchResponse); {
	case err != nil:
	case resp.Created:
		s.ids = append(s.ids, resp.WatchId)
	case resp.WatchId == s.ids[0]:
		resp.WatchId = s.ids[1]
	case resp.WatchId == s.ids[1]:
		resp.WatchId = s.ids[0]
	}
	return err
}

// mixUpFirst is an option for a client whose first watch stream is mixed up.
func mixUpFirst() grpc.DialOption {
	var opened atomic.Int32
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		if err == nil && method == pb.Watch_Watch_FullMethodName && opened.Add(1) == 1 {
			return &mixedUp{ClientStream: stream}, nil
		}
		return stream, err
	})
}

// What happens in one queue must not be taken for what happens in another. The proxy numbers the
// watches of a stream as it likes.
func TestWatch_EventsOfOneQueueDoNotReachAnother(t *testing.T) {
	t.Parallel()
	proxied, shared := startGRPCProxy(t, ownEtcd(t)).Endpoint(), etcdserver.Shared(t).Endpoint()
	for name, client := range map[string]*clientv3.Client{
		"grpc-proxy":   dial(t, proxied),
		"ids mixed up": dial(t, shared, mixUpFirst()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := fresh(t)
			other := dial(t, client.Endpoints()[0])
			a, b := newTestLocker(t, other, cfg), newTestLocker(t, client, cfg)
			for _, names := range [][]string{{"1", "2"}, {"a longer name than a whole lock key of the other", "3"}} {
				first, second := acquire(t, a, names[0]), acquire(t, a, names[1])
				var waiting []<-chan result
				for _, name := range names {
					waiting = append(waiting, acquiring(patient(t), b, name))
					awaitKeys(t, other, b.cluster.Keys.Queue(name), 2)
					awaitWatching(t, b, name)
				}
				release(t, second)
				select {
				case got := <-waiting[1]:
					require.NoError(t, got.err)
					require.Greater(t, got.lease.Grant().Token, second.Grant().Token)
				case got := <-waiting[0]:
					require.NoError(t, got.err)
					require.FailNow(t, "two hold a lock")
				}
				require.Empty(t, waiting[0])
				release(t, first)
				require.NoError(t, etcdtest.Receive(t, waiting[0]).err)
			}
		})
	}
}

func TestCheck_SaysThatAProxyAnswers(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t)
	client := dial(t, startGRPCProxy(t, e).Endpoint())
	l := newTestLocker(t, client, fresh(t))
	requireReason(t, l.Check(patient(t)), fence.Proxied)
	requireReason(t, l.Check(patient(t)), fence.Proxied)
	client.SetEndpoints(e.Endpoint())
	require.Eventually(t, func() bool { return l.Check(patient(t)) == nil }, etcdtest.Patience, 1)
}
