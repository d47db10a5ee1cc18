package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
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
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestRelease_ASecondCallDoesNothing(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	first := acquire(t, l, "r")
	release(t, first)
	second := acquire(t, l, "r")
	release(t, first)
	require.NoError(t, second.Context().Err())
	require.Equal(t, keyOf(second), string(awaitKeys(t, client, l.cluster.Keys.Queue("r"), 1)[0].Key))
}

func TestRelease_EndsTheContextEvenIfItsOwnIsOver(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	le := acquire(t, l, "r")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, le.Release(over), context.Canceled)
	require.ErrorIs(t, context.Cause(le.Context()), fence.ErrReleased)
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 0)
	require.NoError(t, le.Release(over))
	release(t, acquire(t, l, "r"))
}

func TestLoss_ADeletedKeyEndsTheLease(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	le, other := acquire(t, l, "r"), acquire(t, l, "other")
	_, err := client.Delete(patient(t), keyOf(le))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, le))
	require.NoError(t, other.Context().Err(), "the session lives on")
	again := acquire(t, l, "r")
	require.Greater(t, again.Grant().Token, le.Grant().Token)
}

// A session that ends says so to one position after another. Until it comes to one whose turn has come, that
// is neither granted nor told, and hears of it then.
func TestLoss_ATurnBehindAnEndingSessionIsTold(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), fresh(t))
	p := hold(t, l, "r")
	l.mu.Lock()
	unlock := sync.OnceFunc(l.mu.Unlock)
	defer unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.session.End(fence.LossExpired)
	}()
	require.Eventually(t, func() bool { return p.session.Remaining() == 0 }, etcdtest.Patience, time.Millisecond)
	owns, err := l.look(p)
	require.NoError(t, err)
	require.False(t, owns)
	news := p.news
	unlock()
	etcdtest.Receive(t, news)
	etcdtest.Receive(t, ended)
	_, err = l.look(p)
	require.ErrorContains(t, err, "queue position of r lost")
}

// A wait that etcd denies ends, and so does the polling for it.
func TestDenied_StopsThePolling(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	l := newTestLocker(t, client, fresh(t))
	p := hold(t, l, "r")
	failed := make(chan error, 1)
	go func() {
		_, err := l.Acquire(patient(t), "r")
		failed <- err
	}()
	polls := func() bool {
		p.line.mu.Lock()
		defer p.line.mu.Unlock()
		return p.line.polling != nil
	}
	require.Eventually(t, polls, etcdtest.Patience, time.Millisecond)
	denied := errors.New("denied")
	p.line.Denied(denied)
	require.False(t, polls())
	require.ErrorContains(t, etcdtest.Receive(t, failed), "denied")
	release(t, p)
}

func TestLoss_ARevokedLeaseEndsAll(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	a, b := acquire(t, l, "a"), acquire(t, l, "b")
	old := l.sessions.Current().ID
	_, err := client.Revoke(patient(t), old)
	require.NoError(t, err)
	require.Equal(t, fence.LossExpired, lossOf(t, a))
	require.Equal(t, fence.LossExpired, lossOf(t, b))
	again := acquire(t, l, "a")
	require.NotEqual(t, old, l.sessions.Current().ID, "a new session")
	require.NoError(t, again.Context().Err())
}

// The Acquire itself may be what finds out that the lease is gone.
func TestAcquire_MakesANewSessionWhenItFindsTheOldOneGone(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l := newTestLocker(t, client, cfg)
	release(t, acquire(t, l, "r")) // now nothing is watched
	old := l.sessions.Current().ID
	_, err := client.Revoke(patient(t), old)
	require.NoError(t, err)
	le := acquire(t, l, "r")
	require.NotEqual(t, old, l.sessions.Current().ID)
	require.NoError(t, le.Context().Err())
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
		release(t, held)
		release(t, acquire(t, b, "r"))
	}
}

func TestAfterContended_RunsWhenAnotherLockerWaits(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	called := make(chan string, 10)
	stopped := held.AfterContended(func() { called <- "stopped" })
	require.True(t, stopped())
	require.False(t, stopped())
	stop := held.AfterContended(func() { called <- "before" })
	waiting := acquiring(patient(t), b, "r")
	require.Equal(t, "before", etcdtest.Receive(t, called))
	require.False(t, stop(), "it has been called")
	held.AfterContended(func() { called <- "at once" })
	require.Equal(t, "at once", etcdtest.Receive(t, called))
	release(t, held)
	next := (<-waiting).lease
	held.AfterContended(func() { called <- "after the end" })
	stop = next.AfterContended(func() { called <- "without a waiter" })
	release(t, next)
	require.False(t, stop(), "the end took it back already")
	require.Empty(t, called, "each is called once, and none after the end")
}

func TestAfterContended_SeesAWaiterThatCameBeforeTheGrant(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b, c := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	second := queued(t, b, "r", 2)
	third := queued(t, c, "r", 3)
	release(t, held)
	got := <-second
	require.NoError(t, got.err)
	requireContended(t, got.lease)
	release(t, got.lease)
	require.NoError(t, (<-third).err)
}

func TestClose_EndsAndFreesEverything(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	l, other := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held, theirs := acquire(t, l, "r"), acquire(t, other, "theirs")
	local := acquiring(patient(t), l, "r")
	remote := queued(t, l, "theirs", 2)
	id := l.sessions.Current().ID
	require.NoError(t, l.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, held))
	require.ErrorIs(t, (<-local).err, fence.ErrClosed)
	require.ErrorIs(t, (<-remote).err, fence.ErrClosed)
	ttl, err := client.TimeToLive(patient(t), id)
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl.TTL, "the lease is revoked, the client still works")

	_, err = l.Acquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrClosed)
	_, err = l.TryAcquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrClosed)
	require.NoError(t, l.Close(patient(t)))
	require.NoError(t, theirs.Context().Err())
	require.Zero(t, l.GrantedTTL())
}

// etcd-io/etcd issue 22082: a key of the same name may be another holder's.
func TestRelease_NeverDeletesByNameAlone(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), space(t)
	l := lockerOf(t, client, names, etcdtest.Patience)
	le := hold(t, l, "r")
	_, err := client.Delete(patient(t), le.Key())
	require.NoError(t, err)
	_, err = client.Put(patient(t), le.Key(), "another one's")
	require.NoError(t, err)
	require.NoError(t, l.erase(patient(t), deletes([]*position{le})...)) // Release does nothing once the loss is known
	require.Equal(t, "another one's", string(awaitKeys(t, client, names.Queue("r"), 1)[0].Value))
}

// The deletion is under way when it is made again; it arrives when a later
// acquisition has written a key of the same name.
func TestNoSpace_AWithdrawalThatArrivesLateSparesTheNextKey(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(func(txn *pb.TxnRequest) bool {
		return txn.Compare[0].Result == pb.Compare_EQUAL && etcdtest.Deletes(txn)
	})
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept))
	l := lockerOf(t, client, space(t), etcdtest.Patience)
	first := hold(t, l, "r")
	late.Arm()
	withdrawn := make(chan error, 1)
	go func() { withdrawn <- l.withdraw(patient(t), false, first) }()
	deliver := late.Kept(t)
	require.Error(t, etcdtest.Receive(t, withdrawn))
	require.NoError(t, l.withdraw(patient(t), false, first))
	awaitKeys(t, client, first.Key(), 0)
	release(t, first)
	second := hold(t, l, "r")
	require.Equal(t, first.Key(), second.Key(), "or this shows nothing")
	require.NotNil(t, deliver())
	awaitKeys(t, client, second.Key(), 1)
	require.NoError(t, context.Cause(second.Context()))
}

// An answer that is lost proves nothing: the deletion is made again before Release returns.
func TestRelease_InDoubtIsRepeated(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.Deletes)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept))
	l := lockerOf(t, client, space(t), etcdtest.Patience)
	le, kept := hold(t, l, "r"), hold(t, l, "kept")
	late.Arm()
	release(t, le)
	resp, err := client.Get(patient(t), le.Key())
	require.NoError(t, err)
	require.Empty(t, resp.Kvs)
	require.NotNil(t, late.Kept(t)())
	require.NoError(t, kept.Context().Err())
}

// etcd goes through a trace of each name that a queue ever had, until it compacts: a
// resource that is acquired often must not become slow.
func TestReuse_AcquisitionsThatFollowOneAnotherHaveOneKey(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), space(t)
	l := lockerOf(t, client, names, etcdtest.Patience)
	began, err := client.Get(patient(t), names.Queue("r"))
	require.NoError(t, err)
	last := fence.Token(0)
	for range 20 {
		le := hold(t, l, "r")
		require.Greater(t, le.Grant().Token, last, "each is a new grant (F1)")
		last = le.Grant().Token
		release(t, le)
	}
	first := hold(t, l, "r")
	second := holding(patient(t), t, l, "r")
	awaitKeys(t, client, names.Queue("r"), 2)
	release(t, first)
	etcdtest.Receive(t, first.untilSettled())
	third := holding(patient(t), t, l, "r")
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
			names := space(t)
			l := lockerOf(t, client, names, etcdtest.Patience)
			kept := hold(t, l, "kept")
			p := inTurn(t, l, kept.session, "r")
			if what == "void" { // of an acquisition that never arrives
				lost.Arm()
			}
			if what != "release" {
				late.Arm()
			}
			l.sender.put(patient(t), p)
			if err := l.await(patient(t), p); what == "release" {
				require.NoError(t, err)
				late.Arm()
				release(t, p)
			} else {
				require.Error(t, err)
				l.abandon(p)
			}
			deliver := late.Kept(t)
			etcdtest.Receive(t, p.untilSettled())
			second := hold(t, l, "r")
			require.Equal(t, p.Key(), second.Key(), "or this shows nothing")
			require.NotNil(t, deliver())
			kvs := awaitKeys(t, client, names.Queue("r"), 1)
			require.EqualValues(t, second.Grant().Token, kvs[0].ModRevision)
			require.NoError(t, context.Cause(second.Context()))
			require.NoError(t, context.Cause(kept.Context()))
		})
	}
}

// sentTwice has a key of l that was deleted written again, by a copy of the Txn that wrote it:
// that of the resource's first position, or of its second one.
func sentTwice(t *testing.T, l *Locker, client *clientv3.Client, copies func() []*pb.TxnRequest, number int) (last fence.Token, again *mvccpb.KeyValue) {
	t.Helper()
	queue := l.cluster.Keys.Queue("r")
	earlier := len(copies())
	first := hold(t, l, "r")
	waits := holding(patient(t), t, l, "r")
	awaitKeys(t, client, queue, 2)
	release(t, first)
	second := etcdtest.Receive(t, waits)
	release(t, second)
	etcdtest.Receive(t, second.untilSettled())
	resp, err := pb.NewKVClient(client.ActiveConnection()).Txn(patient(t), copies()[earlier+number])
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	return second.Grant().Token, awaitKeys(t, client, queue, 1)[0]
}

// copying keeps the Txns that acquire.
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
			client := dial(t, etcdserver.Shared(t).Endpoint(), option)
			l := lockerOf(t, client, space(t), etcdtest.Patience)
			last, again := sentTwice(t, l, client, copies, number)
			next := hold(t, l, "r")
			require.Greater(t, next.Grant().Token, last)
			require.Equal(t, number == 0, int64(next.Grant().Token) == again.CreateRevision)
			release(t, next)
			awaitKeys(t, client, l.cluster.Keys.Queue("r"), 0)
		})
	}
}

// The request that removes such a key arrives late: a position has taken the key over.
func TestReuse_LateRemovalSparesAKeyThatWasTakenOver(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	removals := make(chan *pb.TxnRequest, 100)
	late := etcdtest.OnTxn(func(_ context.Context, txn *pb.TxnRequest, send func() error) error {
		if armed.Load() && etcdtest.Deletes(txn) {
			removals <- txn
			return status.Error(codes.Unavailable, "connection lost")
		}
		return send()
	})
	option, copies := copying()
	client := dial(t, etcdserver.Shared(t).Endpoint(), option, late)
	l := lockerOf(t, client, space(t), etcdtest.Patience)
	_, again := sentTwice(t, l, client, copies, 1)
	armed.Store(true)
	waits := holding(patient(t), t, l, "r")
	removal := etcdtest.Receive(t, removals)
	held := hold(t, l, "r")
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

// The cleaner is asked twice to remove what an Acquire of unknown outcome may have left. By the time of the
// second removal, another call waits under that name behind another process.
func TestCleaner_AskedTwiceSparesTheNextKeyOfTheName(t *testing.T) {
	t.Parallel()
	lost, came, allowed := etcdtest.NewLateTxn(etcdtest.IsAcquire), make(chan struct{}, 10), make(chan struct{}, 1)
	voids := etcdtest.OnTxn(func(ctx context.Context, txn *pb.TxnRequest, send func() error) error {
		if etcdtest.Puts(txn, "/void/") {
			came <- struct{}{}
			select {
			case <-allowed:
			case <-ctx.Done():
			}
		}
		return send()
	})
	names := space(t)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(lost.Intercept), voids)
	l, other := lockerOf(t, client, names, etcdtest.Patience), lockerOf(t, etcdserver.Client(t), names, etcdtest.Patience)
	kept, theirs := hold(t, l, "kept"), hold(t, other, "r")
	doubt := func(resource string) *position {
		p := inTurn(t, l, kept.session, resource)
		lost.Arm()
		l.sender.put(patient(t), p)
		lost.Kept(t)
		l.abandon(p)
		return p
	}
	p := doubt("r")
	etcdtest.Receive(t, came)
	l.cleaner.add(p)
	allowed <- struct{}{}
	etcdtest.Receive(t, p.untilSettled())
	waiting := holding(patient(t), t, l, "r")
	require.Equal(t, p.Key(), string(awaitKeys(t, client, names.Queue("r"), 2)[1].Key), "or this shows nothing")
	close(allowed)
	etcdtest.Receive(t, doubt("behind it").untilSettled())
	release(t, theirs)
	require.NotNil(t, etcdtest.Receive(t, waiting), "its key was not deleted")
}

// A key that could not be deleted stays ahead of the later ones of its queue, and holds no other queue up.
func TestCleaner_KeepsTheOrderOfEachQueue(t *testing.T) {
	t.Parallel()
	c := &cleaner{locker: &Locker{sender: &sender{room: 3}}}
	r, other := &line{}, &line{}
	first, second, third, later := &position{line: r, left: leftKey}, &position{line: r, left: leftKey}, &position{line: r, left: leftKey}, &position{line: r, left: leftKey}
	x, y := &position{line: other, left: leftKey}, &position{line: other, left: leftKey}
	c.waiting = []*position{first, second, third, later, x, y}
	takes := func(want ...*position) {
		t.Helper()
		got := c.take()
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
		}
	}
	fail := func(ps ...*position) {
		for _, p := range ps {
			p.tries++
		}
		c.putBack(ps)
	}
	takes(first, second, third)
	fail(first, second, third)
	takes(x, y)
	takes(first)
	fail(first)
	c.waiting = append([]*position{x}, c.waiting...)
	takes(x)
	takes(first)
	takes(second)
	takes(third)
	takes(later)
	takes()
}

func TestAfterLost_RunsWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), fresh(t))
	held := acquire(t, l, "r")
	require.NoError(t, held.Err())
	called := make(chan error, 2)
	tell := func() { called <- held.Err() }
	held.AfterLost(tell)
	held.AfterLost(tell)
	require.NoError(t, l.Close(patient(t)))
	for range 2 {
		loss := new(fence.LeaseLostError)
		require.ErrorAs(t, etcdtest.Receive(t, called), &loss)
		require.Equal(t, fence.LeaseLostError{Grant: held.Grant(), Reason: fence.LossClosed}, *loss)
	}
	held.AfterLost(tell)
	require.ErrorIs(t, etcdtest.Receive(t, called), fence.ErrLeaseLost, "at once")
}

func TestAfterLost_DoesNotRunAfterARelease(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), fresh(t))
	held, next := acquire(t, l, "r"), acquire(t, l, "another")
	called := make(chan string, 2)
	held.AfterLost(func() { called <- "released" })
	release(t, held)
	require.ErrorIs(t, held.Err(), fence.ErrReleased)
	held.AfterLost(func() { called <- "afterwards" })
	next.AfterLost(func() { called <- "lost" })
	require.NoError(t, l.Close(patient(t)))
	require.Equal(t, "lost", etcdtest.Receive(t, called))
	require.Empty(t, called)
}
