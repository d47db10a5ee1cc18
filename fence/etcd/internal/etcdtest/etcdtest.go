// Package etcdtest helps the tests of the lock service on etcd.
package etcdtest

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const Patience = 60 * time.Second

// Patient returns a context that ends only when the test has failed.
func Patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

func Receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-Patient(t).Done():
		require.FailNow(t, "waited in vain")
		panic("not reached")
	}
}

func Dial(t testing.TB, endpoint string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	return Client(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: opts})
}

func Client(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	client, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func AwaitKeys(t testing.TB, client *clientv3.Client, prefix string, n int) []*mvccpb.KeyValue {
	t.Helper()
	ctx, cancel := context.WithCancel(Patient(t))
	defer cancel()
	var changes clientv3.WatchChan
	for {
		resp, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		require.NoError(t, err)
		if len(resp.Kvs) == n {
			return resp.Kvs
		}
		if changes == nil {
			changes = client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
		}
		got, ok := <-changes
		require.True(t, ok, "waiting for %d keys under %s", n, prefix)
		require.NoError(t, got.Err())
	}
}

func OnUnary(method string, f func(ctx context.Context, req, reply any, send func() error) error) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		send := func() error { return invoke(ctx, name, req, reply, cc, opts...) }
		if name == method {
			return f(ctx, req, reply, send)
		}
		return send()
	})
}

func OnTxn(f func(ctx context.Context, txn *pb.TxnRequest, send func() error) error) grpc.DialOption {
	return OnUnary(pb.KV_Txn_FullMethodName, func(ctx context.Context, req, _ any, send func() error) error {
		return f(ctx, req.(*pb.TxnRequest), send)
	})
}

func OnStream(method string, f func(ctx context.Context, stream grpc.ClientStream) (grpc.ClientStream, error)) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, name string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, name, opts...)
		if err != nil || name != method {
			return stream, err
		}
		return f(ctx, stream)
	})
}

type LateTxn struct {
	match func(*pb.TxnRequest) bool
	armed chan struct{}
	held  chan func() *pb.TxnResponse
}

func NewLateTxn(match func(*pb.TxnRequest) bool) *LateTxn {
	return &LateTxn{match, make(chan struct{}, 1), make(chan func() *pb.TxnResponse, 1)}
}

func (l *LateTxn) Arm() { l.armed <- struct{}{} }

func (l *LateTxn) Kept(t testing.TB) (deliver func() *pb.TxnResponse) {
	t.Helper()
	return Receive(t, l.held)
}

func (l *LateTxn) Intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if txn, ok := req.(*pb.TxnRequest); !ok || !l.match(txn) {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	select {
	case <-l.armed:
		l.held <- func() *pb.TxnResponse {
			resp := new(pb.TxnResponse)
			if err := invoke(context.Background(), method, req, resp, cc); err != nil {
				return nil
			}
			return resp
		}
		return status.Error(codes.Unavailable, "connection lost")
	default:
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

func Puts(txn *pb.TxnRequest, text string) bool {
	return slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		return bytes.Contains(op.GetRequestPut().GetKey(), []byte(text))
	})
}

func Deletes(txn *pb.TxnRequest) bool {
	return !slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		within := op.GetRequestTxn()
		return op.GetRequestDeleteRange() == nil && (within == nil || !Deletes(within))
	})
}

func IsAcquire(txn *pb.TxnRequest) bool { return Puts(txn, "/locks/") }

func IsVoid(txn *pb.TxnRequest) bool { return len(txn.Compare) == 0 && Puts(txn, "/void/") }
