package etcd

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// calls counts what a client sends.
type calls struct {
	mu      sync.Mutex
	unary   map[string]int
	streams map[string]int
}

func newCalls() *calls { return &calls{unary: map[string]int{}, streams: map[string]int{}} }

func (c *calls) count(in map[string]int, method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in[method]++
}

func (c *calls) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			c.count(c.unary, method)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			c.count(c.streams, method)
			return open(ctx, desc, cc, method, opts...)
		}),
	}
}

// since returns the unary calls since the last one.
func (c *calls) since() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := maps.Clone(c.unary)
	clear(c.unary)
	return counted
}

// opened is how many streams of a kind were opened.
func (c *calls) opened(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[method]
}

func TestCost_OneRoundTripEachForAcquireAndRelease(t *testing.T) {
	t.Parallel()
	c := newCalls()
	cfg := fresh(t)
	cfg.TTL, cfg.requestTimeout = 10*time.Minute, 10*time.Minute // a renewal has a minute before another stream is tried
	l := newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(), c.options()...), cfg)
	release(t, acquire(t, l, "r"))
	require.Equal(t, map[string]int{pb.Lease_LeaseGrant_FullMethodName: 1, pb.KV_Txn_FullMethodName: 2}, c.since(), "the first one makes the session")

	le := acquire(t, l, "r")
	require.Equal(t, map[string]int{pb.KV_Txn_FullMethodName: 1}, c.since())
	le.AfterContended(func() {})
	for range 3 {
		require.True(t, renews(t, l))
	}
	require.Empty(t, c.since(), "a lease that is kept costs renewals alone")
	require.Equal(t, 1, c.opened(pb.Lease_LeaseKeepAlive_FullMethodName), "over one stream")
	release(t, le)
	require.Equal(t, map[string]int{pb.KV_Txn_FullMethodName: 1}, c.since())
}
