package queue

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// A service whose deadlines are shorter than etcd's answers must not fill etcd: the
// answers to 3,000 acquisitions come after these were given up.
func TestUnknown_ThousandsOfAcquiresInDoubtLeaveOneKey_HD12(t *testing.T) {
	t.Parallel()
	const many = 3000
	var written sync.WaitGroup
	var voids, most atomic.Int64 // under way
	noAnswer := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		txn, ok := req.(*pb.TxnRequest)
		if ok && bytes.Contains(txn.Success[0].GetRequestPut().GetKey(), []byte("/void/")) {
			n := voids.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			defer voids.Add(-1)
		}
		err := invoke(ctx, method, req, reply, cc, opts...)
		if !ok || !isAcquire(txn) || ctx.Value(unanswered{}) == nil {
			return err
		}
		written.Done()
		<-ctx.Done()
		return ctx.Err()
	}
	endpoint, names := etcdserver.Shared(t).Endpoint(), fresh(t)
	q, admin := newQueues(t, dial(t, endpoint, grpc.WithChainUnaryInterceptor(noAnswer)), names, time.Hour), dial(t, endpoint) // no key goes because the session ends
	kept := acquire(t, q, "kept")

	ctx, giveUp := context.WithCancel(context.WithValue(patient(t), unanswered{}, true))
	defer giveUp()
	var acquires sync.WaitGroup
	written.Add(many)
	for i := range many {
		acquires.Go(func() {
			_, err := q.Acquire(ctx, fmt.Sprint("sku/", i))
			if err == nil {
				t.Errorf("acquired sku/%d although no answer came", i)
			}
		})
	}
	written.Wait()
	giveUp()
	acquires.Wait()
	for i := range many { // waits until the earlier acquisition of the name is settled
		release(t, acquire(t, q, fmt.Sprint("sku/", i)))
	}
	require.NoError(t, kept.Context().Err())
	require.LessOrEqual(t, most.Load(), int64(maxClearing), "requests at a time")
	resp, err := admin.Get(patient(t), names.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.EqualValues(t, 2, resp.Count, "the lock that is held, and what voids all that may arrive late")
}

// unanswered is the key under which a context says that requests get no answer.
type unanswered struct{}

// The void of a later acquisition may overtake an earlier one's request on its way
// to etcd, and then rules that out too. It is sent again.
func TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12(t *testing.T) {
	t.Parallel()
	names := fresh(t)
	q := newQueues(t, etcdserver.Client(t), names, etcdtest.Patience)
	kept := acquire(t, q, "kept")
	s := kept.position.session
	early, late := inTurn(t, q, s, "early"), inTurn(t, q, s, "late")
	require.NoError(t, q.void(patient(t), late)) // the key is there already
	sent := q.cluster.Sending()
	require.NoError(t, q.void(patient(t), late))
	o, err := q.write(patient(t), early, sent, false)
	require.NoError(t, err)
	require.False(t, o.written)
	other := newQueues(t, q.cluster.Client, names, etcdtest.Patience)
	release(t, acquire(t, other, "other"))
	require.NoError(t, other.void(patient(t), late)) // q hasn't seen its revision
	require.NoError(t, q.queueUp(patient(t), early, false))
	etcdtest.Receive(t, early.turn)
	release(t, &Lease{early})
	require.NoError(t, kept.Context().Err())
}

// The void of an earlier acquisition that arrives after a later one's still has
// the earlier one's key to delete.
func TestUnknown_AVoidThatALaterOneOvertookDeletesItsKey_HD12(t *testing.T) {
	t.Parallel()
	for _, mutexKeys := range []bool{false, true} {
		client, names := etcdserver.Client(t), fresh(t)
		names.Mutex = mutexKeys
		q := newQueues(t, client, names, etcdtest.Patience)
		name := "early-" + rand.Text()
		s := acquire(t, q, "kept-"+rand.Text()).position.session
		early, late := inTurn(t, q, s, name), inTurn(t, q, s, "late-"+rand.Text())
		require.NoError(t, q.queueUp(patient(t), early, false))
		other := newQueues(t, client, names, etcdtest.Patience)
		require.NoError(t, other.void(patient(t), late)) // q hasn't seen its revision
		require.NoError(t, q.void(patient(t), early))
		awaitKeys(t, client, names.Queue(name), 0)
		awaitKeys(t, client, names.Prefix+"/void/", 1)
	}
}

// isAcquire tells an acquire Txn: it begins by putting a lock key.
func isAcquire(txn *pb.TxnRequest) bool {
	return bytes.Contains(txn.Success[0].GetRequestPut().GetKey(), []byte("/locks/"))
}
