package etcdtest

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// LateTxn answers "connection lost" to a Txn that the test chooses, keeps the Txn, and
// delivers it when the test says.
type LateTxn struct {
	match func(*pb.TxnRequest) bool
	armed chan struct{}
	held  chan func() *pb.TxnResponse
}

// NewLateTxn returns one for Txns that match; its Intercept is for the client's connection.
func NewLateTxn(match func(*pb.TxnRequest) bool) *LateTxn {
	return &LateTxn{match, make(chan struct{}, 1), make(chan func() *pb.TxnResponse, 1)}
}

// Arm has the next Txn that matches be kept.
func (l *LateTxn) Arm() { l.armed <- struct{}{} }

// Kept waits for the Txn to come, and returns what delivers it: that returns etcd's answer, or
// nil if there is none.
func (l *LateTxn) Kept(t testing.TB) (deliver func() *pb.TxnResponse) {
	t.Helper()
	return Receive(t, l.held)
}

// Intercept is a grpc.UnaryClientInterceptor.
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
