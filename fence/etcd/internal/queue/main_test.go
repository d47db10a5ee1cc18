package queue

import (
	"context"
	"log/slog"
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

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience bounds waits for what has to happen; no test depends on its length.
const patience = 60 * time.Second

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// receive waits for c's next value, or for its end.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-patient(t).Done():
		require.FailNow(t, "waited in vain")
		panic("not reached")
	}
}

// fresh returns a prefix of the test's own.
func fresh(t testing.TB) keys.Space { return keys.Space{Prefix: t.Name() + "-" + keys.NewNonce()} }

// newQueues returns queues whose waiters don't poll, and that are closed with the test.
func newQueues(t testing.TB, client *clientv3.Client, names keys.Space, timeout time.Duration) *Queues {
	t.Helper()
	c := cluster.New(client, names, timeout, slog.New(slog.DiscardHandler))
	sessions := session.NewManager(c, session.Config{TTL: max(30*time.Second, timeout), RequestTimeout: timeout})
	q := New(c, sessions, watch.New(c, time.Hour), "test")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		q.Close()
		_ = sessions.Close(ctx)
		c.Tasks.Stop()
		sessions.CloseStream()
	})
	return q
}

// dial returns a client that is closed with the test, if it isn't yet.
func dial(t testing.TB, endpoint string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialOptions: opts})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func acquire(t testing.TB, q *Queues, resource string) *Lease {
	t.Helper()
	le, err := q.Acquire(patient(t), resource)
	require.NoError(t, err)
	return le
}

func release(t testing.TB, le fence.Lease) {
	t.Helper()
	require.NoError(t, le.Release(patient(t)))
}

// inTurn returns a position whose key isn't written yet.
func inTurn(t testing.TB, q *Queues, s *session.Session, resource string) *Position {
	t.Helper()
	free, _ := q.local.tryTake(resource)
	require.True(t, free)
	p := q.newPosition(s, resource)
	require.NotNil(t, p)
	t.Cleanup(func() { p.end(fence.ErrReleased) })
	return p
}

// awaitKeys waits until there are n keys under the prefix, and returns them by
// create revision.
func awaitKeys(t testing.TB, client *clientv3.Client, prefix string, n int) []*mvccpb.KeyValue {
	t.Helper()
	for {
		resp, err := client.Get(patient(t), prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		require.NoError(t, err)
		if len(resp.Kvs) == n {
			return resp.Kvs
		}
		ctx, cancel := context.WithCancel(patient(t))
		_, ok := <-client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
		cancel()
		require.True(t, ok, "waiting for %d keys under %s", n, prefix)
	}
}

// lateRequests answers "connection lost" to a Txn that the test chooses, keeps the Txn, and
// delivers it when the test says.
type lateRequests struct {
	match func(*pb.TxnRequest) bool
	armed chan struct{}
	held  chan func() *pb.TxnResponse
}

func newLateRequests(match func(*pb.TxnRequest) bool) *lateRequests {
	return &lateRequests{match, make(chan struct{}, 1), make(chan func() *pb.TxnResponse, 1)}
}

func (l *lateRequests) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
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
