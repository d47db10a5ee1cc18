package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// A service whose deadlines are shorter than etcd's answers must not fill etcd: the
// answers to hundreds of acquisitions come after these were given up.
func TestUnknown_ThousandsOfAcquiresInDoubtLeaveOneKey(t *testing.T) {
	t.Parallel()
	const many = 300
	var written sync.WaitGroup
	var muted atomic.Bool
	var voids, most atomic.Int64 // under way
	noAnswer := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		txn, ok := req.(*pb.TxnRequest)
		if ok && etcdtest.Puts(txn, "/void/") {
			n := voids.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			defer voids.Add(-1)
		}
		err := invoke(ctx, method, req, reply, cc, opts...)
		if !ok || !etcdtest.IsAcquire(txn) || !muted.Load() {
			return err
		}
		for _, op := range txn.Success {
			if op.GetRequestPut() != nil {
				written.Done()
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}
	endpoint, names := etcdserver.Shared(t).Endpoint(), fresh(t)
	q, admin := newQueues(t, dial(t, endpoint, grpc.WithChainUnaryInterceptor(noAnswer)), names, time.Hour), dial(t, endpoint) // no key goes because the session ends
	kept := acquire(t, q, "kept")

	ctx, giveUp := context.WithTimeout(t.Context(), 10*etcdtest.Patience) // the first one waits for the last
	defer giveUp()
	var acquires sync.WaitGroup
	muted.Store(true)
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
	muted.Store(false)
	giveUp()
	acquires.Wait()
	awaitKeys(t, admin, names.Prefix, 2) // the lock that is held, and what voids all that may arrive late
	require.NoError(t, kept.Context().Err())
	require.EqualValues(t, 1, most.Load(), "requests at a time")
	release(t, acquire(t, q, "sku/0"))
}

// The void of a later acquisition may overtake an earlier one's request on its way
// to etcd, and then rules that out too. It is sent again.
func TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain(t *testing.T) {
	t.Parallel()
	names := fresh(t)
	q := newQueues(t, etcdserver.Client(t), names, etcdtest.Patience)
	kept := acquire(t, q, "kept")
	s := kept.position.session
	early, late := inTurn(t, q, s, "early"), inTurn(t, q, s, "late")
	require.NoError(t, q.void(patient(t), late)) // the key is there already
	sent := q.cluster.Sending()
	require.NoError(t, q.void(patient(t), late))
	f := &flight{sender: q.sender, session: s, puts: []*Position{early}}
	txn, err := f.txn(patient(t), sent)
	require.NoError(t, err)
	resp, err := txn.Commit()
	require.NoError(t, err)
	require.False(t, resp.Succeeded)
	other := newQueues(t, q.cluster.Client, names, etcdtest.Patience)
	release(t, acquire(t, other, "other"))
	require.NoError(t, other.void(patient(t), late)) // q hasn't seen its revision
	q.sender.put(patient(t), early)
	require.NoError(t, q.await(patient(t), early))
	release(t, Lease{early})
	require.NoError(t, kept.Context().Err())
}

// With MutexKeys the void of an earlier acquisition that arrives after a later one's still
// has the earlier one's key to delete.
func TestUnknown_AVoidThatALaterOneOvertookDeletesItsKey(t *testing.T) {
	t.Parallel()
	for _, mutexKeys := range []bool{false, true} {
		client, names := etcdserver.Client(t), fresh(t)
		names.Mutex = mutexKeys
		q := newQueues(t, client, names, etcdtest.Patience)
		name := "early-" + rand.Text()
		early := acquire(t, q, name).position
		late := inTurn(t, q, early.session, "late-"+rand.Text())
		other := newQueues(t, client, names, etcdtest.Patience)
		require.NoError(t, other.void(patient(t), late)) // q hasn't seen its revision
		require.NoError(t, q.void(patient(t), early))
		awaitKeys(t, client, names.Queue(name), 0)
		awaitKeys(t, client, names.Prefix+"/void/", 1)
	}
}
