package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// When the lock was contended, the revision that etcd's own mutex reports is not
// the key's create revision but that of a later read.
func TestAcquire_TheTokenIsTheCreateRevision(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	waiting := queued(t, b, "r", 2)
	other := acquire(t, a, "another") // so that the revision rises
	release(t, held)
	got := <-waiting
	require.NoError(t, got.err)
	kvs := awaitKeys(t, client, a.cluster.Keys.Queue("r"), 1)
	require.EqualValues(t, kvs[0].CreateRevision, got.lease.Grant().Token)
	require.Equal(t, got.lease.Grant().Holder, cluster.HolderIn(kvs[0].Value))
	kvs = awaitKeys(t, client, a.cluster.Keys.Queue("another"), 1)
	require.EqualValues(t, kvs[0].CreateRevision, other.Grant().Token)
}

// Goroutines of one process don't share a key, a token or the lock.
func TestAcquire_GoroutinesExcludeEachOther(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	lockers := []*Locker{newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)}
	var (
		running sync.WaitGroup
		holding sync.Mutex // TryLock only: the lock under test has to exclude
		mu      sync.Mutex
		grants  []fence.Grant
	)
	for i := range 16 {
		running.Go(func() {
			le, err := lockers[i%2].Acquire(patient(t), "r")
			if !holds(t, err == nil, "acquire: %v", err) {
				return
			}
			holds(t, holding.TryLock(), "two hold the lock")
			mu.Lock()
			grants = append(grants, le.Grant())
			mu.Unlock()
			holding.Unlock()
			err = le.Release(patient(t))
			holds(t, err == nil, "release: %v", err)
		})
	}
	running.Wait()
	require.Len(t, grants, 16)
	holders := map[string]bool{}
	for i, g := range grants {
		require.False(t, holders[g.Holder])
		holders[g.Holder] = true
		require.True(t, i == 0 || grants[i-1].Token < g.Token)
	}
}

// holds may be called from any goroutine.
func holds(t testing.TB, ok bool, format string, args ...any) bool {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
	return ok
}

func TestAcquire_ServesLockersInOrderOfArrival(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	held := acquire(t, newTestLocker(t, client, cfg), "r")
	order := make(chan int, 5)
	var running sync.WaitGroup
	defer running.Wait()
	for i := range 5 {
		l := newTestLocker(t, client, cfg)
		running.Go(func() {
			le, err := l.Acquire(patient(t), "r")
			if holds(t, err == nil, "acquire: %v", err) {
				order <- i
				err = le.Release(patient(t))
				holds(t, err == nil, "release: %v", err)
			}
		})
		awaitKeys(t, client, l.cluster.Keys.Queue("r"), i+2)
	}
	require.Empty(t, order)
	release(t, held)
	for i := range 5 {
		require.Equal(t, i, etcdtest.Receive(t, order), "the number of the Locker whose turn is number %d", i)
	}
}

func TestTryAcquire_NamesTheHolderAndWritesNothing(t *testing.T) {
	t.Parallel()
	etcd := ownEtcd(t) // of its own, so that nothing else moves the revision
	client, cfg := dial(t, etcd.Endpoint()), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	release(t, acquire(t, b, "warm"))
	le, err := a.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	before, err := client.Get(patient(t), "x")
	require.NoError(t, err)
	for _, l := range []*Locker{a, b} {
		_, err = l.TryAcquire(patient(t), "r")
		require.ErrorIs(t, err, fence.ErrLocked)
		locked := new(fence.LockedError)
		require.ErrorAs(t, err, &locked)
		require.Equal(t, fence.LockedError{Resource: "r", Holder: le.Grant().Holder}, *locked)
	}
	after, err := client.Get(patient(t), "x")
	require.NoError(t, err)
	require.Equal(t, before.Header.Revision, after.Header.Revision)
	release(t, le)
	le, err = b.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	release(t, le)
}

func TestAcquire_FailsAtOnceWhenTheSessionEndsWhileItsTxnIsUnderWay(t *testing.T) {
	t.Parallel()
	etcd := etcdserver.Shared(t)
	p := newLink(t, etcd.Endpoint())
	cfg := fresh(t)
	cfg.requestTimeout = time.Hour
	l, admin := newTestLocker(t, p.dial(t), cfg), dial(t, etcd.Endpoint())
	release(t, acquire(t, l, "warm"))
	unmute := p.Cut(netfault.ToClient)
	waiting := acquiring(patient(t), l, "r")
	awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 1)
	acquired := current(l, "r")
	// The Txn fails with the end of the session before the position learns of that end.
	l.mu.Lock()
	go acquired.session.End(fence.LossDeadline)
	require.Eventually(t, func() bool {
		acquired.line.mu.Lock()
		defer acquired.line.mu.Unlock()
		return acquired.left == leftDoubt
	}, etcdtest.Patience, time.Millisecond)
	l.mu.Unlock()
	var lost lostError
	require.ErrorAs(t, (<-waiting).err, &lost, "while etcd's answers are held back")
	require.Equal(t, fence.LossDeadline, lost.loss.Reason)
	var again interface{ Retryable() bool }
	require.ErrorAs(t, lost, &again)
	require.True(t, again.Retryable(), "guard.Retryable queues anew")
	unmute()
}

// requireGaveUp checks the error of an Acquire that waited for a holder.
func requireGaveUp(t testing.TB, err error, holder string) {
	t.Helper()
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errTired)
	require.NotErrorIs(t, err, fence.ErrUnavailable)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, fence.LockedError{Resource: "r", Holder: holder}, *locked)
	require.Contains(t, err.Error(), "fence: r is locked by "+holder)
	require.NotContains(t, err.Error(), "acquire r", "the caller says so itself")
}

var errTired = errors.New("tired")

func TestAcquire_ThatGivesUpNamesTheHolder(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b, c := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	second := queued(t, b, "r", 2)
	ctx, cancel := context.WithCancelCause(patient(t))
	third := acquiring(ctx, c, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 3)
	awaitWatching(t, c, "r")
	cancel(errTired)
	requireGaveUp(t, (<-third).err, held.Grant().Holder)
	release(t, held)
	require.NoError(t, (<-second).err)
}

// slowLeases answers a renewal when the time to live that it grants is over.
type slowLeases struct{}

func (slowLeases) Grant(context.Context, time.Duration) (clientv3.LeaseID, time.Duration, error) {
	return 1, 9 * time.Second, nil
}

func (slowLeases) KeepAlive(context.Context, clientv3.LeaseID) (time.Duration, error) {
	time.Sleep(2 * time.Second)
	return 2 * time.Second, nil
}

// A process that stood still finds its turn and its deadline at once. Here the
// renewal has moved the deadline into the past; the timer, which says so, has to
// wait until the bubble is idle.
func TestAwait_ATurnAfterTheDeadlineIsNoGrant(t *testing.T) {
	client, names := dial(t, "http://127.0.0.1:1"), space(t)
	synctest.Test(t, func(t *testing.T) {
		l := lockerOf(t, client, names, 5*time.Second)
		s, err := session.Start(t.Context(), slowLeases{}, 9*time.Second, 5*time.Second, l.sessionEnded)
		require.NoError(t, err)
		p := inTurn(t, l, s, "r")
		p.line.mu.Lock()
		p.first = true
		p.line.mu.Unlock()
		awaited := make(chan error, 1)
		s.RenewNow(func() { awaited <- l.await(t.Context(), p) })
		go s.Run()
		var lost lostError
		require.ErrorAs(t, <-awaited, &lost)
		require.Equal(t, fence.LossDeadline, lost.loss.Reason)
		require.False(t, s.Need(), "all that lives under it is lost")
	})
}

func TestAwait_PrefersTheLossToTheTurn(t *testing.T) {
	t.Parallel()
	l := lockerOf(t, etcdserver.Client(t), space(t), etcdtest.Patience)
	p := hold(t, l, "r")
	p.lose(fence.LossDeleted)
	require.Error(t, l.await(patient(t), p))
}

// Between the look and the write another may come: the write itself decides.
func TestTryAcquire_DoesNotQueueWhenAnotherComesBetween(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), space(t)
	a, b := lockerOf(t, client, names, etcdtest.Patience), lockerOf(t, client, names, etcdtest.Patience)
	held := hold(t, a, "r")
	release(t, hold(t, b, "warm"))
	p := inTurn(t, b, b.sessions.Current(), "r")
	claimed, taken, err := b.claimFree(patient(t), p.session, []*position{p})
	require.NoError(t, err)
	require.Zero(t, claimed)
	require.Equal(t, fence.LockedError{Resource: "r", Holder: held.Grant().Holder}, *taken)
	awaitKeys(t, client, names.Queue("r"), 1)
	require.Nil(t, current(b, "r"), "the place is given back")
}

func resources(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("sku/%03d", i))
	}
	return all
}

func TestTryAcquireAll_TakesOneTxn(t *testing.T) {
	t.Parallel()
	count := newTxns()
	client := dial(t, etcdserver.Shared(t).Endpoint(), count.option())
	l := lockerOf(t, client, space(t), etcdtest.Patience)
	release(t, hold(t, l, "warm"))
	count.reset()
	held, err := l.TryAcquireAll(patient(t), resources(100)...)
	require.NoError(t, err)
	require.Len(t, held, 100)
	require.Equal(t, 1, count.reset())
	for i, kv := range awaitKeys(t, client, l.cluster.Keys.Prefix+"/locks/", 100) {
		require.EqualValues(t, kv.CreateRevision, held[i].Grant().Token)
	}
	for _, le := range held {
		release(t, le)
	}
}

// The traps are to queue at several resources at once, and to take what is free behind one
// that is taken: either way two calls can wait for each other.
func TestTryAcquireAll_TakesNothingBehindWhatIsTaken(t *testing.T) {
	t.Parallel()
	client, space := etcdserver.Client(t), space(t)
	a, b := lockerOf(t, client, space, etcdtest.Patience), lockerOf(t, client, space, etcdtest.Patience)
	taken := hold(t, a, "sku/002")
	held, err := b.TryAcquireAll(patient(t), resources(5)...)
	require.NoError(t, err)
	require.Len(t, held, 2)
	keys := awaitKeys(t, client, space.Prefix+"/locks/", 3)
	require.Equal(t, taken.Key(), string(keys[0].Key), "no queue but those of the first two has got a key")
	again, err := b.TryAcquireAll(patient(t), resources(5)...)
	require.NoError(t, err)
	require.Empty(t, again, "this process has the first one")
	for _, le := range held {
		release(t, le)
	}
	release(t, taken)
}

func TestTryAcquireAll_InDoubtLeavesNothing(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.IsAcquire)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept))
	l := lockerOf(t, client, space(t), etcdtest.Patience)
	kept := hold(t, l, "kept")
	late.Arm()
	failed := make(chan error, 1)
	go func() {
		_, err := l.TryAcquireAll(patient(t), resources(3)...)
		failed <- err
	}()
	deliver := late.Kept(t)
	require.ErrorIs(t, etcdtest.Receive(t, failed), fence.ErrUnavailable)
	awaitKeys(t, client, l.cluster.Keys.Prefix+"/void/", 1)
	require.False(t, deliver().Succeeded)
	awaitKeys(t, client, l.cluster.Keys.Queue("sku/000"), 0)
	require.NoError(t, kept.Context().Err())
	release(t, hold(t, l, "sku/000"))
}

// A service whose deadlines are shorter than etcd's answers must not fill etcd: the
// answers to hundreds of acquisitions come after these were given up.
func TestUnknown_ThousandsOfAcquiresInDoubtLeaveOneKey(t *testing.T) {
	t.Parallel()
	const many = 300
	var written sync.WaitGroup
	var muted atomic.Bool
	var voids, most atomic.Int64 // under way
	noAnswer := etcdtest.OnTxn(func(ctx context.Context, txn *pb.TxnRequest, send func() error) error {
		if etcdtest.Puts(txn, "/void/") {
			n := voids.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			defer voids.Add(-1)
		}
		err := send()
		if !etcdtest.IsAcquire(txn) || !muted.Load() {
			return err
		}
		for _, op := range txn.Success {
			if op.GetRequestPut() != nil {
				written.Done()
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
	endpoint, names := etcdserver.Shared(t).Endpoint(), space(t)
	l, admin := lockerOf(t, dial(t, endpoint, noAnswer), names, time.Hour), dial(t, endpoint) // no key goes because the session ends
	kept := hold(t, l, "kept")

	ctx, giveUp := context.WithTimeout(t.Context(), 10*etcdtest.Patience) // the first one waits for the last
	defer giveUp()
	var acquires sync.WaitGroup
	muted.Store(true)
	written.Add(many)
	for i := range many {
		acquires.Go(func() {
			_, err := l.Acquire(ctx, fmt.Sprint("sku/", i))
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
	release(t, hold(t, l, "sku/0"))
}

// The void of a later acquisition may overtake an earlier one's request on its way
// to etcd, and then rules that out too. It is sent again.
func TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain(t *testing.T) {
	t.Parallel()
	names := space(t)
	l := lockerOf(t, etcdserver.Client(t), names, etcdtest.Patience)
	kept := hold(t, l, "kept")
	s := kept.session
	early, late := inTurn(t, l, s, "early"), inTurn(t, l, s, "late")
	require.NoError(t, l.withdraw(patient(t), true, late)) // the key is there already
	sent := l.cluster.Sending()
	require.NoError(t, l.withdraw(patient(t), true, late))
	f := &flight{sender: l.sender, session: s, puts: []*position{early}}
	txn, err := f.txn(patient(t), sent)
	require.NoError(t, err)
	resp, err := txn.Commit()
	require.NoError(t, err)
	require.False(t, resp.Succeeded)
	other := lockerOf(t, l.cluster.Client, names, etcdtest.Patience)
	release(t, hold(t, other, "other"))
	require.NoError(t, other.withdraw(patient(t), true, late)) // l hasn't seen its revision
	l.sender.put(patient(t), early)
	require.NoError(t, l.await(patient(t), early))
	release(t, early)
	require.NoError(t, kept.Context().Err())
}

// With MutexKeys the void of an earlier acquisition that arrives after a later one's still
// has the earlier one's key to delete.
func TestUnknown_AVoidThatALaterOneOvertookDeletesItsKey(t *testing.T) {
	t.Parallel()
	for _, mutexKeys := range []bool{false, true} {
		client, names := etcdserver.Client(t), space(t)
		names.Mutex = mutexKeys
		l := lockerOf(t, client, names, etcdtest.Patience)
		name := "early-" + rand.Text()
		early := hold(t, l, name)
		late := inTurn(t, l, early.session, "late-"+rand.Text())
		other := lockerOf(t, client, names, etcdtest.Patience)
		require.NoError(t, other.withdraw(patient(t), true, late)) // l hasn't seen its revision
		require.NoError(t, l.withdraw(patient(t), true, early))
		awaitKeys(t, client, names.Queue(name), 0)
		awaitKeys(t, client, names.Prefix+"/void/", 1)
	}
}
