package etcd

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func startCluster(t testing.TB) *etcdserver.Cluster {
	t.Helper()
	// With the shorter defaults a busy machine would now and then elect another leader by itself.
	c, err := etcdserver.StartCluster(patient(t), 3, &etcdserver.Config{Heartbeat: 100 * time.Millisecond, Election: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), etcdtest.Patience)
		defer cancel()
		require.NoError(t, c.Stop(ctx))
	})
	return c
}

func leaderAfter(t testing.TB, c *etcdserver.Cluster, old *etcdserver.Member) *etcdserver.Member {
	t.Helper()
	leader, err := c.LeaderAfter(patient(t), old)
	require.NoError(t, err)
	return leader
}

// dialAll returns a client of several members that is closed with the test.
func dialAll(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// persistently repeats a call that fails because a member is away, and fails the test on
// other errors.
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
	cfg.TTL, cfg.RequestTimeout = 60*time.Second, 4*time.Second
	return cfg
}

// The leader is stopped for longer than an election, as by a disk that hangs, and comes back believing that it
// leads.
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
	got := <-waiting
	require.NoError(t, got.err)
	require.Greater(t, got.lease.Grant().Token, held.Grant().Token)
	requireGoesOn(t, b, got.lease)
	persistently(t, b.Close)
	persistently(t, a.Close)
}

// requireGoesOn requires that a session is renewed, that other locks are acquired
// and released, and that the lease is not lost by all this.
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
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, a.cluster.Client, a.cluster.Keys.Queue("r"), 2)
	awaitWatching(t, b, "r")
	client.SetEndpoints(c.Endpoints()...) // open streams stay where they are
	require.NoError(t, follower.Isolate())
	release(t, held)
	got := <-waiting
	require.NoError(t, got.err)
	require.Greater(t, got.lease.Grant().Token, held.Grant().Token)
}

func anotherThan(c *etcdserver.Cluster, m *etcdserver.Member) *etcdserver.Member {
	for _, other := range c.Members() {
		if other != m {
			return other
		}
	}
	return nil
}

// A learner rejects streams. Each client takes the members in turn, from one or the other on: with
// a request beside each attempt to open a stream, all attempts would meet the same member.
func TestLearner_IsLeftForAVoter(t *testing.T) {
	t.Parallel()
	voter := ownEtcd(t)
	learner, err := etcdserver.StartLearner(patient(t), voter)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, learner.Stop(context.Background())) })
	cfg := fresh(t)
	cfg.TTL = time.Hour // no renewal changes whose turn it is
	a := newTestLocker(t, dial(t, voter.Endpoint()), cfg)
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			client := dialAll(t, []string{voter.Endpoint(), learner.Endpoint()})
			b, name := newTestLocker(t, client, cfg), fmt.Sprint(i)
			held := acquire(t, a, name)
			waiting := acquiring(patient(t), b, name)
			awaitKeys(t, a.cluster.Client, a.cluster.Keys.Queue(name), 2)
			awaitWatching(t, b, name)
			release(t, held)
			require.NoError(t, etcdtest.Receive(t, waiting).err)
			for limit := patient(t); !renews(t, b); {
				require.NoError(t, limit.Err(), "no renewal succeeds")
			}
			require.NoError(t, b.Check(patient(t)))

			acquire(t, a, name+" for good")
			waiting = acquiring(patient(t), b, name+" for good")
			awaitKeys(t, a.cluster.Client, a.cluster.Keys.Queue(name+" for good"), 2)
			require.NoError(t, client.Close())
			require.ErrorIs(t, etcdtest.Receive(t, waiting).err, cluster.ErrClientClosed, "also on a connection of the stream's own")
		})
	}
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
	dead, err := client.Put(patient(t), fmt.Sprintf("%s%x-0", l.cluster.Keys.Queue("r"), lease.ID), "", clientv3.WithLease(lease.ID))
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
	inspector, err := NewInspector(client, cfg)
	require.NoError(t, err)
	_, err = inspector.Evict(patient(t), "r", fence.Token(dead.Header.Revision), "its process is dead", "")
	require.NoError(t, err)
	release(t, acquireAtLast(t, l, "r"))
}
