package queue

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

// silent lets Txns that match reach no etcd until their context ends.
func silent(match func(*pb.TxnRequest) bool, armed *atomic.Bool, came chan<- struct{}) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := req.(*pb.TxnRequest); ok && armed.Load() && match(txn) {
			came <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// A Txn that runs in the call that needs it must not outlast the session: Close would leave
// the call waiting.
func TestSender_TheEndOfTheSessionEndsTheTxnOfACall(t *testing.T) {
	t.Parallel()
	for what, match := range map[string]func(*pb.TxnRequest) bool{"acquire": etcdtest.IsAcquire, "release": etcdtest.Deletes} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var armed atomic.Bool
			came := make(chan struct{}, 10)
			client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(silent(match, &armed, came)))
			q := newQueues(t, client, fresh(t), time.Hour)
			held := acquire(t, q, "held")
			armed.Store(true)
			failed := make(chan error, 1)
			go func() {
				if what == "release" {
					failed <- held.Release(patient(t))
					return
				}
				p := inTurn(t, q, held.position.session, "r")
				q.sender.put(patient(t), p)
				failed <- q.await(patient(t), p)
			}()
			etcdtest.Receive(t, came)
			held.position.session.End(fence.LossClosed)
			require.Error(t, etcdtest.Receive(t, failed))
		})
	}
}

// What comes while Txns are stuck goes out without them.
func TestSender_AStuckTxnHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	l := newLoaded(t)
	l.sender.mu.Lock()
	l.sender.stuckAfter = time.Microsecond
	l.sender.mu.Unlock()
	later := acquiring(patient(t), t, l.Queues, "later")
	l.awaitSent(t, maxFlights+1)
	l.letGo()
	require.NotZero(t, etcdtest.Receive(t, later))
}
