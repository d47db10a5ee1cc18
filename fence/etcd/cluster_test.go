package etcd

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func startCluster(t testing.TB) *etcdserver.Cluster {
	t.Helper()
	// With the shorter defaults a busy machine would now and then elect another leader by itself.
	c, err := etcdserver.StartCluster(patient(t), 3, &etcdserver.Config{Heartbeat: 100 * time.Millisecond, Election: 2 * time.Second})
	require.NoError(t, err)
	stopAtEnd(t, c)
	return c
}

func leaderAfter(t testing.TB, c *etcdserver.Cluster, old *etcdserver.Member) *etcdserver.Member {
	t.Helper()
	leader, err := c.LeaderAfter(patient(t), old)
	require.NoError(t, err)
	return leader
}

func dialAll(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	return etcdtest.Client(t, clientv3.Config{Endpoints: endpoints})
}

// persistently repeats a call that fails because a member is away, and fails the test on other errors.
func persistently(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx := patient(t)
	for err := f(ctx); err != nil; err = f(ctx) {
		requireReason(t, err, fence.Unreachable)
		require.NoError(t, ctx.Err())
	}
}

// clusterConfig is for lockers whose members may not answer: its leases are long enough for
// a slow machine, and its requests time out soon.
func clusterConfig(t testing.TB) *Config {
	cfg := fresh(t)
	cfg.TTL, cfg.requestTimeout = 60*time.Second, 4*time.Second
	return cfg
}

// The leader is stopped for longer than an election, as by a disk that hangs, and comes back believing that it leads.
func TestLeaderLoss_WhatIsHeldStaysAndLocksGoOn(t *testing.T) {
	t.Parallel()
	c, cfg := startCluster(t), clusterConfig(t)
	a, b := newTestLocker(t, dialAll(t, c.Endpoints()), cfg), newTestLocker(t, dialAll(t, c.Endpoints()), cfg)
	held := acquireAtLast(t, a, "r")
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, dialAll(t, c.Endpoints()), a.cluster.Keys.Queue("r"), 2)
	old := leaderAfter(t, c, nil)
	require.NoError(t, old.Pause())
	leader := leaderAfter(t, c, old)
	ttl, err := dial(t, leader.Endpoint()).TimeToLive(patient(t), a.sessions.Current().ID)
	require.NoError(t, err)
	require.InDelta(t, 60, ttl.TTL, 30, "the new leader gives every lease its whole time again")
	requireGoesOn(t, a, held)
	require.Empty(t, waiting)

	require.NoError(t, old.Resume())
	requireGoesOn(t, a, held)
	require.Empty(t, waiting)
	persistently(t, held.Release)
	got := granted(t, waiting)
	require.Greater(t, got.Grant().Token, held.Grant().Token)
	requireGoesOn(t, b, got)
	persistently(t, b.Close)
	persistently(t, a.Close)
}

func requireGoesOn(t testing.TB, l *Locker, le fence.Lease) {
	t.Helper()
	for patient := patient(t); !renews(t, l); {
		require.NoError(t, patient.Err(), "no renewal succeeds")
	}
	persistently(t, func(ctx context.Context) error {
		other, err := l.Acquire(ctx, "other")
		if err != nil {
			return err
		}
		return other.Release(ctx)
	})
	require.NoError(t, context.Cause(le.Context()))
}

// The waiter's watch lies at the isolated member, which would keep it open and
// silent for ever. The waiter doesn't poll.
func TestIsolation_AWaiterWithOtherMembersFailsOver(t *testing.T) {
	t.Parallel()
	c, cfg := startCluster(t), clusterConfig(t)
	leader := leaderAfter(t, c, nil)
	a := newTestLocker(t, dial(t, leader.Endpoint()), cfg)
	held := acquireAtLast(t, a, "r")
	follower := anotherThan(c, leader)
	client := dial(t, follower.Endpoint())
	b := newTestLocker(t, client, cfg)
	waiting := queued(t, b, "r", 2)
	awaitWatching(t, b, "r")
	client.SetEndpoints(c.Endpoints()...) // open streams stay where they are
	follower.Isolate()
	release(t, held)
	got := granted(t, waiting)
	require.Greater(t, got.Grant().Token, held.Grant().Token)
}

func anotherThan(c *etcdserver.Cluster, m *etcdserver.Member) *etcdserver.Member {
	for _, other := range c.Members() {
		if other != m {
			return other
		}
	}
	return nil
}

// A holder that has died keeps its resource for the time to live after each election. Elections that come
// faster than that keep it for as long as they come; evicting it helps.
func TestElections_RestartTheTimeToLiveOfADeadHolder(t *testing.T) {
	t.Parallel()
	c, cfg := startCluster(t), clusterConfig(t)
	client := dialAll(t, c.Endpoints())
	const ttl = 60
	lease, err := client.Grant(patient(t), ttl) // that nobody renews
	require.NoError(t, err)
	l := newTestLocker(t, client, cfg)
	key := fmt.Sprintf("%s%x-0", l.cluster.Keys.Queue("r"), lease.ID)
	_, err = client.Put(patient(t), key, "", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	left := func(m *etcdserver.Member) (seconds int64) {
		persistently(t, func(ctx context.Context) error {
			got, err := dial(t, m.Endpoint()).TimeToLive(ctx, lease.ID)
			if err == nil {
				seconds = got.TTL
			}
			return l.cluster.Diagnose("read the time to live", err)
		})
		return seconds
	}
	old := leaderAfter(t, c, nil)
	require.Eventually(t, func() bool { return left(old) < ttl-3 }, etcdtest.Patience, time.Second)
	before, asked := left(old), time.Now()
	status, err := client.Status(patient(t), anotherThan(c, old).Endpoint())
	require.NoError(t, err)
	_, err = dial(t, old.Endpoint()).MoveLeader(patient(t), status.Header.MemberId)
	require.NoError(t, err)
	require.Greater(t, left(leaderAfter(t, c, old))+int64(time.Since(asked).Seconds()), before+1)
	_, err = client.Delete(patient(t), key) // as an eviction does
	require.NoError(t, err)
	release(t, acquireAtLast(t, l, "r"))
}

// silence is a cluster with a follower that has stopped: its kernel acknowledges packets, and the process never
// answers. Locker a, whose client knows all members, holds "r", and its open streams lead to that follower.
type silence struct {
	a, b *Locker // b's client has only the leader
	held fence.Lease
}

func fallSilent(t *testing.T, cfg *Config) *silence {
	t.Helper()
	c := startCluster(t)
	leader := leaderAfter(t, c, nil)
	follower := anotherThan(c, leader)
	client := dial(t, follower.Endpoint())
	s := &silence{a: newTestLocker(t, client, cfg), b: newTestLocker(t, dial(t, leader.Endpoint()), cfg)}
	s.held = acquireAtLast(t, s.a, "r")
	for limit := patient(t); !renews(t, s.a); {
		require.NoError(t, limit.Err(), "no renewal succeeds")
	}
	awaitWatch(t, s.a)
	client.SetEndpoints(c.Endpoints()...) // open streams stay where they are
	require.NoError(t, follower.Pause())
	return s
}

func awaitWatch(t testing.TB, l *Locker) {
	t.Helper()
	le := acquireAtLast(t, l, "watched")
	_, err := l.cluster.Client.Delete(patient(t), keyOf(le))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeleted, lossOf(t, le))
}

// The holder doesn't poll, and its client sends no keep-alive probes.
func TestSilentMember_AHolderLearnsThatOthersWait(t *testing.T) {
	t.Parallel()
	s := fallSilent(t, clusterConfig(t))
	contended := make(chan struct{})
	s.held.AfterContended(func() { close(contended) })
	waiting := acquiring(patient(t), s.b, "r")
	etcdtest.Receive(t, contended)
	persistently(t, s.held.Release)
	require.NoError(t, (<-waiting).err)
}

func TestSilentMember_ARenewalIsAnsweredByAnother(t *testing.T) {
	t.Parallel()
	cfg := clusterConfig(t)
	cfg.requestTimeout = 20 * time.Second
	s := fallSilent(t, cfg)
	require.True(t, renews(t, s.a))
}

func startGRPCProxy(t testing.TB, e *etcdserver.Server) *etcdserver.Server {
	t.Helper()
	p, err := etcdserver.StartProxy(patient(t), e)
	require.NoError(t, err)
	stopAtEnd(t, p)
	return p
}

// What happens in one queue must not be taken for what happens in another. The proxy numbers the watches of a stream
// as it likes.
func TestWatch_EventsOfOneQueueDoNotReachAnother(t *testing.T) {
	t.Parallel()
	endpoint, cfg := startGRPCProxy(t, ownEtcd(t)).Endpoint(), fresh(t)
	other := dial(t, endpoint)
	a, b := newTestLocker(t, other, cfg), newTestLocker(t, dial(t, endpoint), cfg)
	for _, names := range [][]string{{"1", "2"}, {"a longer name than a whole lock key of the other", "3"}} {
		first, second := acquire(t, a, names[0]), acquire(t, a, names[1])
		var waiting []<-chan result
		for _, name := range names {
			waiting = append(waiting, acquiring(patient(t), b, name))
			awaitKeys(t, other, b.cluster.Keys.Queue(name), 2)
			awaitWatching(t, b, name)
		}
		release(t, second)
		select {
		case got := <-waiting[1]:
			require.NoError(t, got.err)
			require.Greater(t, got.lease.Grant().Token, second.Grant().Token)
		case got := <-waiting[0]:
			require.NoError(t, got.err)
			require.FailNow(t, "two hold a lock")
		}
		require.Empty(t, waiting[0])
		release(t, first)
		require.NoError(t, etcdtest.Receive(t, waiting[0]).err)
	}
}

func TestCheck_SaysThatAProxyAnswers(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t)
	client := dial(t, startGRPCProxy(t, e).Endpoint())
	l := newTestLocker(t, client, fresh(t))
	requireReason(t, l.Check(patient(t)), fence.Proxied)
	requireReason(t, l.Check(patient(t)), fence.Proxied)
	client.SetEndpoints(e.Endpoint())
	require.Eventually(t, func() bool { return l.Check(patient(t)) == nil }, etcdtest.Patience, 1)
}
