package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

// A waiter that is cancelled while etcd doesn't answer returns at once, and its key goes once etcd does.
func TestPause_ACancelledWaiterReturnsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t)
	cfg := fresh(t)
	a := newTestLocker(t, dial(t, e.Endpoint()), cfg)
	b := newTestLocker(t, dial(t, e.Endpoint()), cfg)
	admin := dial(t, e.Endpoint())
	held := acquire(t, a, "r")
	kept := acquire(t, b, "kept")
	ctx, cancel := context.WithCancel(patient(t))
	waiting := acquiring(ctx, b, "r")
	awaitKeys(t, admin, a.cluster.Keys.Queue("r"), 2)
	awaitWatching(t, b, "r") // before that its acquisition is in doubt, and cleared away otherwise
	require.NoError(t, e.Pause())
	cancel()
	require.ErrorIs(t, (<-waiting).err, context.Canceled, "while etcd stands still")
	_, err := b.TryAcquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrLocked, "not before the old key is gone")
	require.NoError(t, e.Resume())
	kvs := awaitKeys(t, admin, a.cluster.Keys.Queue("r"), 1)
	require.Equal(t, keyOf(held), string(kvs[0].Key))
	require.NoError(t, kept.Context().Err(), "the session was not given up")
	release(t, held)
	release(t, acquire(t, b, "r"))
}

func TestRestart_LeavesHoldersAndWaitersInPlace(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t)
	cfg := fresh(t)
	a, b := newTestLocker(t, dial(t, e.Endpoint()), cfg), newTestLocker(t, dial(t, e.Endpoint()), cfg)
	admin := dial(t, e.Endpoint())
	held := acquire(t, a, "r")
	waiting := queued(t, b, "r", 2)
	awaitWatching(t, b, "r")
	require.NoError(t, e.Kill())
	require.NoError(t, e.Restart(patient(t)))
	require.NoError(t, held.Context().Err())
	require.Empty(t, waiting)
	release(t, held)
	got := granted(t, waiting)
	_, err := admin.Delete(patient(t), keyOf(got))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, got), "and it still watches")
}

func TestUnknown_AnAcquireWhoseAnswerIsLostLeavesNothing(t *testing.T) {
	t.Parallel()
	etcd := etcdserver.Shared(t)
	p := newLink(t, etcd.Endpoint())
	l, admin := newTestLocker(t, p.dial(t), fresh(t)), dial(t, etcd.Endpoint())
	kept := acquire(t, l, "kept")
	session := l.sessions.Current()
	unmute := p.Cut(netfault.ToClient)
	waiting := acquiring(patient(t), l, "r")
	awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 1)
	p.Reset()
	unmute()
	err := (<-waiting).err
	require.ErrorIs(t, err, fence.ErrUnavailable)
	requireReason(t, err, fence.Unreachable)
	awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 0)
	void := awaitKeys(t, admin, l.cluster.Keys.Prefix+"/void/", 1)
	require.EqualValues(t, session.ID, void[0].Lease, "it goes with the session")
	release(t, acquire(t, l, "r"))
	require.NoError(t, kept.Context().Err())
	require.Same(t, session, l.sessions.Current())
}

// The client sends a Txn again when it is answered "cancelled". The revision of the second
// one is not the key's create revision, so it must not become a token.
func TestUnknown_AnAcquireThatIsSentTwiceGetsNoWrongToken(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	armed := make(chan struct{}, 1)
	var sent atomic.Int64
	twice := etcdtest.OnTxn(func(_ context.Context, txn *pb.TxnRequest, send func() error) error {
		err := send()
		if !etcdtest.IsAcquire(txn) {
			return err
		}
		sent.Add(1)
		select {
		case <-armed:
			return status.Error(codes.Canceled, "not by the caller")
		default:
			return err
		}
	})
	cfg := fresh(t)
	l := newTestLocker(t, dial(t, endpoint, twice), cfg)
	kept, admin := acquire(t, l, "kept"), dial(t, endpoint)
	for _, get := range []func(context.Context, string) (fence.Lease, error){l.Acquire, l.TryAcquire} {
		sent.Store(0)
		armed <- struct{}{}
		le, err := get(patient(t), "r")
		require.NoError(t, err)
		require.GreaterOrEqual(t, sent.Load(), int64(2), "the client did send it twice")
		require.EqualValues(t, awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 1)[0].CreateRevision, le.Grant().Token)
		release(t, le)
	}
	held := acquire(t, newTestLocker(t, admin, cfg), "r")
	sent.Store(0)
	armed <- struct{}{}
	waiting := acquiring(patient(t), l, "r")
	require.Eventually(t, func() bool { return sent.Load() == 2 }, etcdtest.Patience, time.Millisecond)
	awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 2) // meanwhile l takes the answer
	require.Empty(t, waiting, "the second answer doesn't show what was ahead of the key when the first one wrote it")
	release(t, held)
	require.NoError(t, (<-waiting).err)
	require.NoError(t, kept.Context().Err())
}

// Nothing else needs the session and etcd can't be reached: without a session the key can't
// outlive the time to live, and callers needn't wait for it.
func TestUnknown_GivesTheSessionUpWhenNothingElseIsHeld(t *testing.T) {
	t.Parallel()
	etcd := etcdserver.Shared(t)
	p := newLink(t, etcd.Endpoint())
	cfg := fresh(t)
	cfg.requestTimeout = 10 * time.Second // the settlement waits that long for a connection
	cfg.TTL = 20 * time.Minute            // the key goes because the lease is revoked
	l, admin := newTestLocker(t, p.dial(t), cfg), dial(t, etcd.Endpoint())
	release(t, acquireAtLast(t, l, "warm"))
	session := l.sessions.Current()
	unmute := p.Cut(netfault.ToClient)
	waiting := acquiring(patient(t), l, "r")
	awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 1)
	p.goDown()
	require.ErrorIs(t, (<-waiting).err, fence.ErrUnavailable)
	require.Eventually(t, func() bool { return session.Remaining() == 0 }, etcdtest.Patience, time.Millisecond)
	unmute()
	p.down.Store(false)
	awaitKeys(t, admin, l.cluster.Keys.Queue("r"), 0)
	acquireAtLast(t, l, "r")
	require.NotSame(t, session, l.sessions.Current())
}

func TestWatch_AWaiterGetsItsTurnWithoutOne(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	cfg := fresh(t)
	cfg.pollInterval = 10 * time.Millisecond
	client := dial(t, endpoint)
	a := newTestLocker(t, client, cfg)
	b := newTestLocker(t, dial(t, endpoint, grpc.WithChainStreamInterceptor(blind)), cfg)
	held := acquire(t, a, "r")
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 2)
	release(t, held)
	require.NoError(t, (<-waiting).err)
}

func smallEtcd(t testing.TB) *etcdserver.Server {
	return startEtcd(t, &etcdserver.Config{ExtraFlags: []string{"--quota-backend-bytes=2097152"}})
}

func fill(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	for n := range 10000 {
		_, err := admin.Put(patient(t), fmt.Sprint("filler/", n), strings.Repeat("x", 1<<17))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		require.NoError(t, err)
	}
	require.FailNow(t, "etcd has endless space")
}

func mend(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	deleted, err := admin.Delete(patient(t), "filler/", clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = admin.Compact(patient(t), deleted.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = admin.Defragment(patient(t), admin.Endpoints()[0])
	require.NoError(t, err)
	_, err = admin.AlarmDisarm(patient(t), &clientv3.AlarmMember{})
	require.NoError(t, err)
}

func requireNoSpace(t testing.TB, l *Locker, resource string) {
	t.Helper()
	for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.TryAcquire, l.Acquire, l.Acquire} { // each waits until nothing is left of the one before
		_, err := acquire(patient(t), resource)
		require.ErrorIs(t, err, fence.ErrUnavailable)
		requireReason(t, err, fence.NoSpace)
		require.ErrorContains(t, err, "etcdctl alarm disarm")
	}
}

func TestNoSpace_WhatIsHeldGoesOnAndNothingIsAcquired(t *testing.T) {
	t.Parallel()
	e, cfg := smallEtcd(t), fresh(t)
	admin := dial(t, e.Endpoint())
	a, b := newTestLocker(t, dial(t, e.Endpoint()), cfg), newTestLocker(t, dial(t, e.Endpoint()), cfg)
	held, deleted, kept := acquire(t, a, "r"), acquire(t, a, "deleted"), acquire(t, a, "kept")
	waiting := queued(t, b, "r", 2)
	fill(t, admin)

	requireNoSpace(t, a, "new")
	requireNoSpace(t, newTestLocker(t, dial(t, e.Endpoint()), cfg), "new") // has no session yet
	require.True(t, renews(t, a))
	_, err := admin.Delete(patient(t), keyOf(deleted))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, deleted))
	release(t, held)
	next := <-waiting
	require.NoError(t, next.err, "a waiter gets the resource")
	require.NoError(t, kept.Context().Err())
	require.True(t, a.cluster.CheckNow(patient(t)), "a restore would be noticed")
	require.NoError(t, b.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, next.lease))
	awaitKeys(t, admin, a.cluster.Keys.Prefix, 1)

	mend(t, admin)
	release(t, acquire(t, a, "new"))
	release(t, kept)
}

// The holder is cut off from etcd: its locks end by its own deadline, before another holder
// gets them, and the error says why.
func TestPartition_WhatIsKeptEndsByItsDeadline(t *testing.T) {
	t.Parallel()
	e, cfg := etcdserver.Shared(t), fresh(t)
	p := newLink(t, e.Endpoint())
	b := newTestLocker(t, dial(t, e.Endpoint()), cfg) // waits for as long as the test takes
	cfg.TTL, cfg.requestTimeout = 6*time.Second, 2*time.Second
	a := newTestLocker(t, p.dial(t), cfg)
	held := acquireAtLast(t, a, "r")
	waiting := acquiring(patient(t), b, "r")
	require.Eventually(t, func() bool { // on a slow machine the lease may end before b waits
		queue, err := b.cluster.Client.Get(t.Context(), b.cluster.Keys.Queue("r"), clientv3.WithPrefix(), clientv3.WithCountOnly())
		return held.Err() != nil || err == nil && queue.Count == 2
	}, etcdtest.Patience, time.Millisecond)
	p.goDown()
	require.Equal(t, fence.LossDeadline, lossOf(t, held))
	if held.(*position).Session.Paused() == 0 { // else this process stood still for as long
		requireReason(t, context.Cause(held.Context()), fence.Unreachable)
		require.ErrorContains(t, context.Cause(held.Context()), p.endpoint())
	}
	got := granted(t, waiting)
	require.Greater(t, got.Grant().Token, held.Grant().Token)
	_, err := a.TryAcquire(patient(t), "r")
	requireReason(t, err, fence.Unreachable)
	p.down.Store(false)
	persistently(t, func(ctx context.Context) error {
		_, err := a.TryAcquire(ctx, "r")
		if errors.Is(err, fence.ErrLocked) {
			return nil // it works again by itself
		}
		return err
	})
}

// Closing in the wrong order is an easy mistake. Every call fails at once.
func TestClosedClient_EveryCallSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	cfg, admin := fresh(t), dial(t, endpoint)
	acquire(t, newTestLocker(t, admin, cfg), "theirs")
	var log bytes.Buffer // read after Close, which ends all writers
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	client := dial(t, endpoint)
	l := newTestLocker(t, client, cfg)
	held, released := acquire(t, l, "held"), acquire(t, l, "released")
	waiting := queued(t, l, "theirs", 2)
	awaitWatching(t, l, "theirs")
	require.NoError(t, client.Close())

	requireClosedClient(t, (<-waiting).err)
	_, err := l.Acquire(patient(t), "new")
	requireClosedClient(t, err)
	_, err = l.TryAcquire(patient(t), "new")
	requireClosedClient(t, err)
	requireClosedClient(t, released.Release(patient(t)))
	_, err = l.TryAcquire(patient(t), "released")
	requireClosedClient(t, err)
	requireClosedClient(t, l.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, held))
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "closed before the locker")
}

func requireClosedClient(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.ErrorIs(t, err, cluster.ErrClientClosed)
}

// etcd checks its quota before it applies a Txn, and answers "no space" after it: the key
// has been written.
func TestNoSpace_AKeyThatWasWrittenNeverthelessIsDeleted(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	armed := make(chan struct{}, 1)
	full := etcdtest.OnTxn(func(_ context.Context, txn *pb.TxnRequest, send func() error) error {
		err := send()
		if !etcdtest.IsAcquire(txn) {
			return err
		}
		select {
		case <-armed:
			return rpctypes.ErrGRPCNoSpace
		default:
			return err
		}
	})
	l := newTestLocker(t, dial(t, endpoint, full), fresh(t))
	kept := acquire(t, l, "kept")
	armed <- struct{}{}
	_, err := l.Acquire(patient(t), "r")
	requireReason(t, err, fence.NoSpace)
	awaitKeys(t, dial(t, endpoint), l.cluster.Keys.Queue("r"), 0)
	release(t, acquire(t, l, "r"))
	require.NoError(t, kept.Context().Err())
}
