package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/internal/session"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

// Neither the goroutines of one process nor those of several share a key, a token or the lock. With MutexKeys a
// session has one key per resource for all its goroutines: the queue in this process keeps two from sharing it.
func TestAcquire_GoroutinesExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, mutexKeys := range []bool{false, true} {
		client, cfg := etcdserver.Client(t), fresh(t)
		cfg.MutexKeys = mutexKeys
		lockers := []*Locker{newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)}
		var (
			running sync.WaitGroup
			holding sync.Mutex // TryLock only: the lock under test has to exclude
			grants  []fence.Grant
		)
		for i := range 16 {
			running.Go(func() {
				for range 2 {
					le, err := lockers[i%2].Acquire(patient(t), "r-"+cfg.Prefix)
					if !holds(t, err == nil, "acquire: %v", err) {
						return
					}
					if holds(t, holding.TryLock(), "two hold the lock") {
						grants = append(grants, le.Grant())
						holding.Unlock()
					}
					err = le.Release(patient(t))
					holds(t, err == nil, "release: %v", err)
				}
			})
		}
		running.Wait()
		require.Len(t, grants, 32)
		last, holders := fence.Grant{}, map[string]bool{}
		for _, g := range grants {
			require.Positive(t, g.Compare(last))
			require.False(t, holders[g.Holder])
			holders[g.Holder], last = true, g
		}
	}
}

func holds(t testing.TB, ok bool, format string, args ...any) bool {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
	return ok
}

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
	tired := errors.New("tired")
	cancel(tired)
	err := (<-third).err
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, tired)
	require.NotErrorIs(t, err, fence.ErrUnavailable)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, fence.LockedError{Resource: "r", Holder: held.Grant().Holder}, *locked)
	require.Contains(t, err.Error(), "fence: r is locked by ")
	require.NotContains(t, err.Error(), "acquire r", "the caller says so itself")
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

// A process that stood still finds its turn and its deadline at once. Here the renewal has moved the deadline into the
// past; the timer, which says so, has to wait until the bubble is idle.
func TestAwait_ATurnAfterTheDeadlineIsNoGrant(t *testing.T) {
	client, cfg := dial(t, "http://127.0.0.1:1"), fresh(t)
	synctest.Test(t, func(t *testing.T) {
		l := newTestLocker(t, client, cfg)
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
		require.Error(t, s.Context().Err(), "all that lives under it is lost")
	})
}

func TestAwait_PrefersTheLossToTheTurn(t *testing.T) {
	t.Parallel()
	l, _ := locker(t)
	p := acquire(t, l, "r")
	p.lose(fence.LossDeleted)
	require.Error(t, l.await(patient(t), p))

	// Of two acquisitions that share a Txn the first may have ended the session before the second hears why.
	p = inTurn(t, l, l.sessions.Current(), "unwritten")
	p.Session.End(fence.LossExpired)
	p.unwritten(cluster.ErrLeaseGone, true)
	require.ErrorIs(t, l.await(patient(t), p), cluster.ErrLeaseGone, "which acquires anew")
}

// Between the look and the write another may come: the write itself decides.
func TestTryAcquire_DoesNotQueueWhenAnotherComesBetween(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	release(t, acquire(t, b, "warm"))
	p := inTurn(t, b, b.sessions.Current(), "r")
	claimed, taken := b.claimFree(patient(t), p.Session, []*position{p})
	require.Empty(t, claimed)
	require.Equal(t, fence.LockedError{Resource: "r", Holder: held.Grant().Holder}, *taken)
	awaitKeys(t, client, b.cluster.Keys.Queue("r"), 1)
	require.Nil(t, current(b, "r"), "the place is given back")
}

func resources(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("sku/%03d", i))
	}
	return all
}

// The void of a later acquisition may overtake an earlier one's request on its way
// to etcd, and then rules that out too. It is sent again.
func TestUnknown_AnAcquireThatALaterVoidOvertookIsSentAgain(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	l := newTestLocker(t, etcdserver.Client(t), cfg)
	kept := acquire(t, l, "kept")
	s := kept.Session
	early, late := inTurn(t, l, s, "early"), inTurn(t, l, s, "late")
	require.NoError(t, l.withdraw(patient(t), true, late)) // the key is there already
	sent := l.cluster.Sending()
	require.NoError(t, l.withdraw(patient(t), true, late))
	f := &flight{sender: l.sender, puts: []*position{early}}
	txn, err := f.txn(patient(t), sent)
	require.NoError(t, err)
	resp, err := txn.Commit()
	require.NoError(t, err)
	require.False(t, resp.Succeeded)
	other := newTestLocker(t, l.cluster.Client, cfg)
	release(t, acquire(t, other, "other"))
	require.NoError(t, other.withdraw(patient(t), true, late)) // l hasn't seen its revision
	l.sender.put(early)
	require.NoError(t, l.await(patient(t), early))
	release(t, early)
	require.NoError(t, kept.Context().Err())
}

func TestTryAcquireAll_InDoubtLeavesNothing(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.IsAcquire)
	l, client := locker(t, grpc.WithChainUnaryInterceptor(late.Intercept))
	kept := acquire(t, l, "kept")
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
	release(t, acquire(t, l, "sku/000"))
}
