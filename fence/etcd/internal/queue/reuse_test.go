package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// etcd goes through a trace of each name that a queue ever had, until it compacts: a
// resource that is acquired often must not become slow.
func TestReuse_AcquisitionsThatFollowOneAnotherHaveOneKey(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), fresh(t)
	q := newQueues(t, client, names, etcdtest.Patience)
	began, err := client.Get(patient(t), names.Queue("r"))
	require.NoError(t, err)
	last := fence.Token(0)
	for range 20 {
		le := acquire(t, q, "r")
		require.Greater(t, le.Grant().Token, last, "each is a new grant (F1)")
		last = le.Grant().Token
		release(t, le)
	}
	first := acquire(t, q, "r")
	second := acquiring(patient(t), t, q, "r")
	awaitKeys(t, client, names.Queue("r"), 2)
	release(t, first)
	etcdtest.Receive(t, first.position.untilSettled())
	third := acquiring(patient(t), t, q, "r")
	awaitKeys(t, client, names.Queue("r"), 2)
	held := etcdtest.Receive(t, second)
	require.NotEqual(t, first.Key(), held.Key(), "of two at a time each has its own (F2)")
	release(t, held)
	release(t, etcdtest.Receive(t, third))

	seen, put := map[string]bool{}, 0
	for changes := client.Watch(patient(t), names.Queue("r"), clientv3.WithPrefix(), clientv3.WithRev(began.Header.Revision), clientv3.WithFilterDelete()); put < 23; {
		for _, ev := range (<-changes).Events {
			seen[string(ev.Kv.Key)] = true
			put++
		}
	}
	require.Len(t, seen, 2)
}

// The next position has a key of the same name: late requests of the one before must not
// touch it.
func TestReuse_LateRequestsSpareTheNextKey(t *testing.T) {
	t.Parallel()
	for what, match := range map[string]func(*pb.TxnRequest) bool{
		"release": etcdtest.Deletes,
		"void":    func(txn *pb.TxnRequest) bool { return etcdtest.Puts(txn, "/void/") },
		"acquire": etcdtest.IsAcquire,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			late, lost := etcdtest.NewLateTxn(match), etcdtest.NewLateTxn(etcdtest.IsAcquire)
			client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept, lost.Intercept))
			names := fresh(t)
			q := newQueues(t, client, names, etcdtest.Patience)
			kept := acquire(t, q, "kept")
			p := inTurn(t, q, kept.position.session, "r")
			if what == "void" { // of an acquisition that never arrives
				lost.Arm()
			}
			if what != "release" {
				late.Arm()
			}
			q.sender.put(patient(t), p)
			if err := q.await(patient(t), p); what == "release" {
				require.NoError(t, err)
				late.Arm()
				release(t, Lease{p})
			} else {
				require.Error(t, err)
				q.abandon(p)
			}
			deliver := late.Kept(t)
			etcdtest.Receive(t, p.untilSettled())
			second := acquire(t, q, "r")
			require.Equal(t, p.key(), second.Key(), "or this shows nothing")
			require.NotNil(t, deliver())
			kvs := awaitKeys(t, client, names.Queue("r"), 1)
			require.EqualValues(t, second.Grant().Token, kvs[0].ModRevision)
			require.NoError(t, context.Cause(second.Context()))
			require.NoError(t, context.Cause(kept.Context()))
		})
	}
}

// sentTwice has a key of q that was deleted written again, by a copy of the Txn that wrote it:
// that of the resource's first position, or of its second one.
func sentTwice(t *testing.T, q *Queues, client *clientv3.Client, copies func() []*pb.TxnRequest, number int) (last fence.Token, again *mvccpb.KeyValue) {
	t.Helper()
	queue := q.cluster.Keys.Queue("r")
	earlier := len(copies())
	first := acquire(t, q, "r")
	waits := acquiring(patient(t), t, q, "r")
	awaitKeys(t, client, queue, 2)
	release(t, first)
	second := etcdtest.Receive(t, waits)
	release(t, second)
	etcdtest.Receive(t, second.position.untilSettled())
	resp, err := pb.NewKVClient(client.ActiveConnection()).Txn(patient(t), copies()[earlier+number])
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	return second.Grant().Token, awaitKeys(t, client, queue, 1)[0]
}

// copying keeps the Txns that acquire.
func copying() (grpc.UnaryClientInterceptor, func() []*pb.TxnRequest) {
	var mu sync.Mutex
	var kept []*pb.TxnRequest
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if txn, ok := req.(*pb.TxnRequest); ok && etcdtest.IsAcquire(txn) {
				mu.Lock()
				kept = append(kept, txn)
				mu.Unlock()
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}, func() []*pb.TxnRequest {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(kept)
		}
}

// The client sends a Txn again when it is answered "cancelled". If the first one arrives after
// the key was released, it writes the key once more. The process must not wait for itself: the
// next position takes the key over, or the key is removed.
func TestReuse_NoCallWaitsForAKeyThatCameTwice(t *testing.T) {
	t.Parallel()
	for number, of := range []string{"of the next position", "of no position"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			intercept, copies := copying()
			client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(intercept))
			q := newQueues(t, client, fresh(t), etcdtest.Patience)
			last, again := sentTwice(t, q, client, copies, number)
			next := acquire(t, q, "r")
			require.Greater(t, next.Grant().Token, last)
			require.Equal(t, number == 0, int64(next.Grant().Token) == again.CreateRevision)
			release(t, next)
			awaitKeys(t, client, q.cluster.Keys.Queue("r"), 0)
		})
	}
}

// The request that removes such a key arrives late: a position has taken the key over.
func TestReuse_LateRemovalSparesAKeyThatWasTakenOver(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	removals := make(chan *pb.TxnRequest, 100)
	late := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := req.(*pb.TxnRequest); ok && armed.Load() && etcdtest.Deletes(txn) {
			removals <- txn
			return status.Error(codes.Unavailable, "connection lost")
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	intercept, copies := copying()
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(intercept, late))
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	_, again := sentTwice(t, q, client, copies, 1)
	armed.Store(true)
	waits := acquiring(patient(t), t, q, "r")
	removal := etcdtest.Receive(t, removals)
	held := acquire(t, q, "r")
	require.Equal(t, string(again.Key), held.Key())
	require.EqualValues(t, again.CreateRevision, held.Grant().Token)
	armed.Store(false)
	_, err := pb.NewKVClient(client.ActiveConnection()).Txn(patient(t), removal)
	require.NoError(t, err)
	awaitKeys(t, client, held.Key(), 1)
	require.NoError(t, held.Err())
	release(t, held)
	release(t, etcdtest.Receive(t, waits))
}
