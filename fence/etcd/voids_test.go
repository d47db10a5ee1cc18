package etcd

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
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
	endpoint, cfg := testenv.SharedEtcd(t).Endpoint(), fresh(t)
	cfg.TTL, cfg.RequestTimeout = time.Hour, time.Hour // no key goes because the session ends
	l, admin := newTestLocker(t, dial(t, endpoint, grpc.WithChainUnaryInterceptor(noAnswer)), cfg), dial(t, endpoint)
	kept := acquire(t, l, "kept")

	ctx, giveUp := context.WithCancel(context.WithValue(patient(t), unanswered{}, true))
	defer giveUp()
	var acquires sync.WaitGroup
	written.Add(many)
	for i := range many {
		acquires.Go(func() {
			_, err := l.Acquire(ctx, fmt.Sprint("sku/", i))
			holds(t, err != nil, "acquired sku/%d although no answer came", i)
		})
	}
	written.Wait()
	giveUp()
	acquires.Wait()
	for i := range many { // waits until the earlier acquisition of the name is settled
		release(t, acquire(t, l, fmt.Sprint("sku/", i)))
	}
	require.NoError(t, kept.Context().Err())
	require.LessOrEqual(t, most.Load(), int64(clearers), "requests at a time")
	resp, err := admin.Get(patient(t), l.keys.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.EqualValues(t, 2, resp.Count, "the lock that is held, and what voids all that may arrive late")
}

// unanswered is the key under which a context says that requests get no answer.
type unanswered struct{}

// The void of a later acquisition may overtake an earlier one's request on its way
// to etcd, and then rules that out too. It is sent again as a later one.
func TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain_HD12(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, testenv.EtcdClient(t), fresh(t))
	kept := acquire(t, l, "kept")
	s := kept.(lease).session
	early, late := inTurn(t, l, s, "early"), inTurn(t, l, s, "late")
	early.number = s.number()
	late.number = s.number()
	require.NoError(t, l.void(patient(t), late))
	o, err := l.write(patient(t), early, l.marks.sending().epoch, false)
	require.NoError(t, err)
	require.Equal(t, outcome{void: true}, o)
	require.NoError(t, l.queueUp(patient(t), early, false))
	receive(t, early.turn)
	release(t, lease{early})
	require.NoError(t, kept.Context().Err())
}

// The void of an earlier acquisition that arrives after a later one's still has
// the earlier one's key to delete.
func TestUnknown_AVoidThatALaterOneOvertookDeletesItsKey_HD12(t *testing.T) {
	t.Parallel()
	for _, mutexKeys := range []bool{false, true} {
		client, cfg := testenv.EtcdClient(t), fresh(t)
		cfg.MutexKeys = mutexKeys
		l := newTestLocker(t, client, cfg)
		name := "early-" + newNonce()
		s := acquire(t, l, "kept-"+newNonce()).(lease).session
		early, late := inTurn(t, l, s, name), inTurn(t, l, s, "late-"+newNonce())
		require.NoError(t, l.queueUp(patient(t), early, false))
		late.number = s.number()
		require.NoError(t, l.void(patient(t), late))
		require.NoError(t, l.void(patient(t), early))
		awaitKeys(t, client, l.keys.queue(name), 0)
		awaitKeys(t, client, l.keys.prefix+"/void/", 1)
	}
}

// inTurn returns a place whose key isn't written yet.
func inTurn(t testing.TB, l *Locker, s *session, resource string) *place {
	t.Helper()
	free, _ := l.local.tryEnter(resource)
	require.True(t, free)
	p := l.newPlace(s, resource)
	require.NotNil(t, p)
	t.Cleanup(func() { p.end(fence.ErrReleased) })
	return p
}
