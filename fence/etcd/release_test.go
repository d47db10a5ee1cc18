package etcd

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func TestLoss_OfTheKeyOrTheSession(t *testing.T) {
	t.Parallel()
	l, client := locker(t)
	deleted, a, b := acquire(t, l, "r"), acquire(t, l, "a"), acquire(t, l, "b")
	_, err := client.Delete(patient(t), deleted.Key())
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, deleted))
	require.NoError(t, a.Err(), "the session lives on")
	again := acquire(t, l, "r")
	release(t, deleted) // does nothing
	require.Equal(t, again.Key(), string(awaitKeys(t, client, l.cluster.Keys.Queue("r"), 1)[0].Key))
	require.NoError(t, again.Err())

	old := l.sessions.Current().ID
	_, err = client.Revoke(patient(t), old)
	require.NoError(t, err)
	for _, le := range []fence.Lease{a, b, again} {
		require.Equal(t, fence.LossExpired, lossOf(t, le))
	}
	again = acquire(t, l, "a")
	require.NotEqual(t, old, l.sessions.Current().ID, "a new session")
	require.NoError(t, again.Err())
}

func TestAcquire_FailsWhenItsQueuePositionIsLost(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	for reason, inject := range map[fence.LossReason]func(kv *mvccpb.KeyValue) error{
		fence.LossDeleted: func(kv *mvccpb.KeyValue) error {
			_, err := client.Delete(patient(t), string(kv.Key))
			return err
		},
		fence.LossExpired: func(kv *mvccpb.KeyValue) error {
			_, err := client.Revoke(patient(t), clientv3.LeaseID(kv.Lease))
			return err
		},
	} {
		held := acquire(t, a, "r")
		waiting := acquiring(patient(t), b, "r")
		kvs := awaitKeys(t, client, a.cluster.Keys.Queue("r"), 2)
		require.NoError(t, inject(kvs[1]))
		err := (<-waiting).err
		require.ErrorIs(t, err, fence.ErrUnavailable)
		var lost lostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, reason, lost.loss.Reason)
		require.True(t, lost.Retryable(), "guard.Retryable queues anew")
		release(t, held)
		release(t, acquire(t, b, "r"))
	}
}

// etcd-io/etcd issue 22082: a key of the same name may be another holder's.
func TestRelease_NeverDeletesByNameAlone(t *testing.T) {
	t.Parallel()
	l, client := locker(t)
	le := acquire(t, l, "r")
	_, err := client.Delete(patient(t), le.Key())
	require.NoError(t, err)
	_, err = client.Put(patient(t), le.Key(), "another one's")
	require.NoError(t, err)
	require.NoError(t, l.erase(patient(t), deletes([]*position{le})...)) // Release does nothing once the loss is known
	require.Equal(t, "another one's", string(awaitKeys(t, client, l.cluster.Keys.Queue("r"), 1)[0].Value))
}

// An answer that is lost proves nothing: the deletion is made again before Release returns.
func TestRelease_InDoubtIsRepeated(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.Deletes)
	l, client := locker(t, grpc.WithChainUnaryInterceptor(late.Intercept))
	le, kept := acquire(t, l, "r"), acquire(t, l, "kept")
	late.Arm()
	release(t, le)
	resp, err := client.Get(patient(t), le.Key())
	require.NoError(t, err)
	require.Empty(t, resp.Kvs)
	require.NotNil(t, late.Kept(t)())
	require.NoError(t, kept.Context().Err())
}

// The next acquisition has a key of the same name: late requests of the one before must not touch it.
func TestReuse_LateRequestsSpareTheNextKey(t *testing.T) {
	t.Parallel()
	name := "r-" + rand.Text()
	acquires := func(txn *pb.TxnRequest) bool { return etcdtest.Puts(txn, name) && len(txn.Compare) > 1 }
	for what, match := range map[string]func(*pb.TxnRequest) bool{
		"release":  etcdtest.Deletes,
		"void":     etcdtest.IsVoid,
		"acquire":  acquires,
		"proclaim": isProclaim,
	} {
		for _, mutexKeys := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, MutexKeys %v", what, mutexKeys), func(t *testing.T) {
				late, lost, cfg := etcdtest.NewLateTxn(match), etcdtest.NewLateTxn(acquires), fresh(t)
				cfg.MutexKeys = mutexKeys
				l := newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept, lost.Intercept)), cfg)
				kept := acquire(t, l, "kept-"+name)
				led := campaign(t, election(t, l, name), "first")
				late.Arm()
				if what == "proclaim" {
					require.True(t, isInDoubt(led.Proclaim(patient(t), "late")))
				}
				release(t, led)
				if what == "void" { // of an acquisition that never arrives
					lost.Arm()
				}
				if what == "void" || what == "acquire" {
					_, err := l.Acquire(patient(t), name)
					require.ErrorIs(t, err, fence.ErrUnavailable)
				}
				deliver := late.Kept(t)
				if !mutexKeys { // else the next acquisition waits
					require.Eventually(t, func() bool { return !l.knows(name) }, etcdtest.Patience, time.Millisecond)
				}
				second := acquire(t, l, name)
				require.Equal(t, keyOf(led), keyOf(second), "or this shows nothing")
				require.NotNil(t, deliver())
				kv := awaitKeys(t, l.cluster.Client, l.cluster.Keys.Queue(name), 1)[0]
				require.EqualValues(t, second.Grant().Token, kv.CreateRevision)
				require.EqualValues(t, second.Grant().Token, kv.ModRevision)
				require.NoError(t, kept.Err())
				require.NoError(t, second.Err())
				release(t, second)
			})
		}
	}
}

// knows reports whether this process has a position in the queue of the resource that isn't settled.
func (l *Locker) knows(resource string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[resource] != nil
}

// sentTwice has a key of l that was deleted written again, by a copy of the Txn that wrote it:
// that of the resource's first position, or of its second one.
func sentTwice(t *testing.T, l *Locker, client *clientv3.Client, copies func() []*pb.TxnRequest, number int) (last fence.Token, again *mvccpb.KeyValue) {
	t.Helper()
	queue := l.cluster.Keys.Queue("r")
	earlier := len(copies())
	first := acquire(t, l, "r")
	waits := acquiring(patient(t), l, "r")
	awaitKeys(t, client, queue, 2)
	release(t, first)
	second := granted(t, waits)
	release(t, second)
	awaitSettled(t, second)
	resp, err := pb.NewKVClient(client.ActiveConnection()).Txn(patient(t), copies()[earlier+number])
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	return second.Grant().Token, awaitKeys(t, client, queue, 1)[0]
}

func copying() (grpc.DialOption, func() []*pb.TxnRequest) {
	var mu sync.Mutex
	var kept []*pb.TxnRequest
	return etcdtest.OnTxn(func(_ context.Context, txn *pb.TxnRequest, send func() error) error {
			if etcdtest.IsAcquire(txn) {
				mu.Lock()
				kept = append(kept, txn)
				mu.Unlock()
			}
			return send()
		}), func() []*pb.TxnRequest {
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
			option, copies := copying()
			l, client := locker(t, option)
			last, again := sentTwice(t, l, client, copies, number)
			next := acquire(t, l, "r")
			require.Greater(t, next.Grant().Token, last)
			require.Equal(t, number == 0, int64(next.Grant().Token) == again.CreateRevision)
			release(t, next)
			awaitKeys(t, client, l.cluster.Keys.Queue("r"), 0)
		})
	}
}

func keepingStrays() (grpc.DialOption, <-chan *pb.TxnRequest) {
	removals := make(chan *pb.TxnRequest, 100)
	return etcdtest.OnTxn(func(_ context.Context, txn *pb.TxnRequest, send func() error) error {
		if etcdtest.Deletes(txn) && len(txn.Compare) == 1 && txn.Compare[0].Target == pb.Compare_MOD {
			removals <- txn
			return status.Error(codes.Unavailable, "connection lost")
		}
		return send()
	}), removals
}

// The request that removes such a key arrives late: a position has taken the key over.
func TestReuse_LateRemovalSparesAKeyThatWasTakenOver(t *testing.T) {
	t.Parallel()
	late, removals := keepingStrays()
	option, copies := copying()
	l, client := locker(t, option, late)
	_, again := sentTwice(t, l, client, copies, 1)
	waits := acquiring(patient(t), l, "r")
	removal := etcdtest.Receive(t, removals)
	held := acquire(t, l, "r")
	require.Equal(t, string(again.Key), held.Key())
	require.EqualValues(t, again.CreateRevision, held.Grant().Token)
	_, err := pb.NewKVClient(etcdserver.Client(t).ActiveConnection()).Txn(patient(t), removal)
	require.NoError(t, err)
	awaitKeys(t, client, held.Key(), 1)
	require.NoError(t, held.Err())
	release(t, held)
	release(t, granted(t, waits))
}

// The sender is asked twice to remove what an Acquire of unknown outcome may have left. By the time of the
// second removal, another call waits under that name behind another process.
func TestCleaner_AskedTwiceSparesTheNextKeyOfTheName(t *testing.T) {
	t.Parallel()
	lost, came, allowed := etcdtest.NewLateTxn(etcdtest.IsAcquire), make(chan struct{}, 10), make(chan struct{}, 1)
	voids := etcdtest.OnTxn(func(ctx context.Context, txn *pb.TxnRequest, send func() error) error {
		if etcdtest.IsVoid(txn) {
			came <- struct{}{}
			select {
			case <-allowed:
			case <-ctx.Done():
			}
		}
		return send()
	})
	cfg := fresh(t)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(lost.Intercept), voids)
	l, other := newTestLocker(t, client, cfg), newTestLocker(t, etcdserver.Client(t), cfg)
	kept, theirs := acquire(t, l, "kept"), acquire(t, other, "r")
	doubt := func(resource string) *position {
		p := inTurn(t, l, kept.Session, resource)
		lost.Arm()
		l.sender.put(p)
		lost.Kept(t)
		l.abandon(p)
		return p
	}
	p := doubt("r")
	etcdtest.Receive(t, came)
	l.sender.remove(p)
	allowed <- struct{}{}
	awaitSettled(t, p)
	waiting := acquiring(patient(t), l, "r")
	require.Equal(t, p.Key(), string(awaitKeys(t, client, l.cluster.Keys.Queue("r"), 2)[1].Key), "or this shows nothing")
	close(allowed)
	awaitSettled(t, doubt("behind it"))
	release(t, theirs)
	granted(t, waiting) // its key was not deleted
}

// A key that could not be deleted stays ahead of the later ones of its queue, and holds no other queue up.
func TestCleaner_KeepsTheOrderOfEachQueue(t *testing.T) {
	t.Parallel()
	c := &sender{most: 3}
	r, other := &line{}, &line{}
	first, second, third, later := &position{line: r, left: leftKey}, &position{line: r, left: leftKey}, &position{line: r, left: leftKey}, &position{line: r, left: leftKey}
	x, y := &position{line: other, left: leftKey}, &position{line: other, left: leftKey}
	c.left = []*position{first, second, third, later, x, y}
	takes := func(want ...*position) {
		t.Helper()
		got, _ := c.takeLeft()
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
		}
	}
	takes(first, second, third)
	c.most = 1 // as after an error
	c.putBack([]*position{first, second, third})
	takes(x)
	takes(y)
	takes(first)
	c.left = append([]*position{x}, c.left...)
	c.putBack([]*position{first})
	c.most = 2
	takes(x, first)
	takes(second, third)
	takes(later)
	takes()
}

// TryAcquire puts nothing where a key is, so it can't take one over.
func TestReuse_LateRemovalSparesTheKeyOfATryAcquire(t *testing.T) {
	t.Parallel()
	late, removals := keepingStrays()
	option, copies := copying()
	l, client := locker(t, option, late)
	first := acquire(t, l, "r")
	waits := acquiring(patient(t), l, "r")
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 2)
	release(t, first)
	second := granted(t, waits)
	awaitSettled(t, first)
	second.AfterContended(func() {})
	kv := pb.NewKVClient(etcdserver.Client(t).ActiveConnection())
	_, err := kv.Txn(patient(t), copies()[0])
	require.NoError(t, err)
	removal := etcdtest.Receive(t, removals)
	release(t, second)
	le, err := l.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	require.Equal(t, first.Key(), keyOf(le), "or this shows nothing")
	require.Greater(t, le.Grant().Token, second.Grant().Token)
	_, err = kv.Txn(patient(t), removal)
	require.NoError(t, err)
	require.EqualValues(t, le.Grant().Token, awaitKeys(t, client, l.cluster.Keys.Queue("r"), 1)[0].CreateRevision)
	require.NoError(t, le.Err())
	release(t, le)
}
