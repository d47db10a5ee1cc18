package etcd

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/queue"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func startCluster(t testing.TB) *etcdserver.Cluster {
	t.Helper()
	return startClusterOn(t, false)
}

func startClusterOn(t testing.TB, slowDisk bool) *etcdserver.Cluster {
	t.Helper()
	// With the shorter defaults a busy machine would now and then elect another leader by itself.
	c, err := etcdserver.StartCluster(patient(t), 3, &etcdserver.Config{Heartbeat: 100 * time.Millisecond, Election: 2 * time.Second, SlowDisk: slowDisk})
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

const slowInWriting = "slow in writing"

// leaderFaults are faults of the leader; each returns a function that reverts it.
var leaderFaults = map[string]struct {
	inject, revert func(context.Context, *etcdserver.Member) error
}{
	"killed": {
		func(_ context.Context, m *etcdserver.Member) error { return m.Kill() },
		func(ctx context.Context, m *etcdserver.Member) error { return m.Restart(ctx) },
	},
	// For longer than an election: the member comes back believing that it leads, as after
	// a disk that hung.
	"stopped": {
		func(_ context.Context, m *etcdserver.Member) error { return m.Pause() },
		func(_ context.Context, m *etcdserver.Member) error { return m.Resume() },
	},
	// Its process runs, and answers what needs no disk, but a write of its log takes longer than an election.
	slowInWriting: {
		func(ctx context.Context, m *etcdserver.Member) error {
			client, err := m.Client(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			if err := m.SlowDisk(10 * time.Second); err != nil {
				return err
			}
			_, _ = client.Put(ctx, "slow", "") // may or may not get an answer
			return nil
		},
		func(_ context.Context, m *etcdserver.Member) error { return m.SlowDisk(0) },
	},
	"isolated": {
		func(_ context.Context, m *etcdserver.Member) error { return m.Isolate() },
		func(_ context.Context, m *etcdserver.Member) error { return m.Rejoin() },
	},
}

func TestLeaderLoss_WhatIsHeldStaysAndLocksGoOn(t *testing.T) {
	t.Parallel()
	for name, fault := range leaderFaults {
		if name == slowInWriting && os.Getenv("FENCEKIT_ETCD_CLUSTER") == "docker" {
			continue // the containers have an etcd of their own
		}
		t.Run(name, func(t *testing.T) {
			c, cfg := startClusterOn(t, name == slowInWriting), clusterConfig(t)
			a, b := newTestLocker(t, dialAll(t, c.Endpoints()), cfg), newTestLocker(t, dialAll(t, c.Endpoints()), cfg)
			held := acquireAtLast(t, a, "r")
			waiting := acquiring(patient(t), b, "r")
			awaitKeys(t, dialAll(t, c.Endpoints()), a.cluster.Keys.Queue("r"), 2)
			old := leaderAfter(t, c, nil)
			require.NoError(t, fault.inject(patient(t), old))
			leader := leaderAfter(t, c, old)
			ttl, err := dial(t, leader.Endpoint()).TimeToLive(patient(t), a.sessions.Current().ID)
			require.NoError(t, err)
			require.InDelta(t, 60, ttl.TTL, 30, "the new leader gives every lease its whole time again")
			requireGoesOn(t, a, held)
			require.Empty(t, waiting)

			require.NoError(t, fault.revert(patient(t), old))
			requireGoesOn(t, a, held)
			require.Empty(t, waiting)
			persistently(t, held.Release)
			got := <-waiting
			require.NoError(t, got.err)
			require.Greater(t, got.lease.Grant().Token, held.Grant().Token)
			requireGoesOn(t, b, got.lease)
			persistently(t, b.Close)
			persistently(t, a.Close)
		})
	}
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

// Three processes pass one lock around while every leader is taken away in turn.
// No lease may expire here, so no two may ever own the lock at once.
func TestLeaderLoss_ThereAreNeverTwoOwners(t *testing.T) {
	t.Parallel()
	c, cfg := startCluster(t), clusterConfig(t)
	cfg.pollInterval = 100 * time.Millisecond // a watch at a member that is stopped shows nothing
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		working sync.WaitGroup
		holding sync.Mutex // only tried: the lock under test has to exclude
		last    fence.Token
	)
	passed := make(chan struct{}, 1)
	for range 3 {
		l := newTestLocker(t, dialAll(t, c.Endpoints()), cfg)
		working.Go(func() {
			for ctx.Err() == nil {
				le, err := l.Acquire(ctx, "r")
				if err != nil {
					continue
				}
				if holds(t, holding.TryLock(), "two hold the lock") {
					holds(t, le.Grant().Token > last, "token %d after %d", le.Grant().Token, last)
					last = le.Grant().Token
					holding.Unlock()
				}
				select {
				case passed <- struct{}{}:
				default:
				}
				_ = le.Release(ctx) // goes on in the background
			}
		})
	}
	turns := func() {
		t.Helper()
		for range 5 {
			select {
			case <-passed:
			case <-patient(t).Done():
				require.FailNow(t, "the lock is not acquired")
			}
		}
	}
	for _, name := range []string{"killed", "stopped", "isolated"} {
		old := leaderAfter(t, c, nil)
		require.NoError(t, leaderFaults[name].inject(patient(t), old))
		leaderAfter(t, c, old)
		turns()
		require.NoError(t, leaderFaults[name].revert(patient(t), old))
		turns()
	}
	cancel()
	working.Wait()
}

// A waiter that reaches only the isolated member can't learn that its turn has come. It
// gets an error and doesn't wait for ever.
func TestIsolation_AWaiterOfTheIsolatedMemberGetsAnError(t *testing.T) {
	t.Parallel()
	c, cfg := startCluster(t), clusterConfig(t)
	leader := leaderAfter(t, c, nil)
	a := newTestLocker(t, dial(t, leader.Endpoint()), cfg)
	held := acquireAtLast(t, a, "r")
	follower := anotherThan(c, leader)
	cfg.TTL = 8 * time.Second
	b := newTestLocker(t, dial(t, follower.Endpoint()), cfg)
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, a.cluster.Client, a.cluster.Keys.Queue("r"), 2)
	require.NoError(t, follower.Isolate())
	err := (<-waiting).err
	require.ErrorIs(t, err, fence.ErrUnavailable)
	requireReason(t, err, fence.Unreachable)
	lost := new(queue.LostError)
	require.ErrorAs(t, err, &lost)
	require.Equal(t, fence.LossDeadline, lost.Reason)
	awaitKeys(t, a.cluster.Client, a.cluster.Keys.Queue("r"), 1) // its lease has expired
	_, err = b.Acquire(patient(t), "r")
	requireReason(t, err, fence.Unreachable)
	require.NoError(t, context.Cause(held.Context()))
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

// A holder that reaches only the isolated member loses the lock when its lease ends, and
// its successor's token is higher. Both go on once the member is back.
func TestIsolation_AHolderOfTheIsolatedMemberLosesItsLock(t *testing.T) {
	t.Parallel()
	c, cfg := startCluster(t), clusterConfig(t)
	leader := leaderAfter(t, c, nil)
	b := newTestLocker(t, dial(t, anotherThan(c, leader).Endpoint()), cfg)
	cfg.TTL = 8 * time.Second
	a := newTestLocker(t, dial(t, leader.Endpoint()), cfg)
	held := acquireAtLast(t, a, "r")
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, b.cluster.Client, b.cluster.Keys.Queue("r"), 2)
	require.NoError(t, leader.Isolate())
	<-held.Context().Done()
	lost := new(fence.LeaseLostError)
	require.ErrorAs(t, context.Cause(held.Context()), &lost)
	require.Equal(t, fence.LossDeadline, lost.Reason)
	next := <-waiting
	require.NoError(t, next.err)
	require.Greater(t, next.lease.Grant().Token, held.Grant().Token)

	require.NoError(t, leader.Rejoin())
	requireGoesOn(t, b, next.lease)
	release(t, next.lease)
	persistently(t, func(ctx context.Context) error {
		again, err := a.Acquire(ctx, "r")
		if err != nil {
			return err
		}
		require.Greater(t, again.Grant().Token, next.lease.Grant().Token)
		return again.Release(ctx)
	})
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
	for i := range 8 {
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
	died := time.Now()
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
	for n := range 3 {
		old := leaderAfter(t, c, nil)
		require.Eventually(t, func() bool { return left(old) < ttl-3 }, etcdtest.Patience, time.Second)
		before, asked := left(old), time.Now()
		next := c.Members()[n]
		if next == old {
			next = c.Members()[(n+1)%3]
		}
		status, err := client.Status(patient(t), next.Endpoint())
		require.NoError(t, err)
		_, err = dial(t, old.Endpoint()).MoveLeader(patient(t), status.Header.MemberId)
		require.NoError(t, err)
		after := left(leaderAfter(t, c, old))
		require.Greater(t, after+int64(time.Since(asked).Seconds()), before+1)
		t.Logf("%v after the holder's death an election: %d s were left, now %d s", time.Since(died).Round(time.Second), before, after)
	}
	inspector, err := NewInspector(client, cfg)
	require.NoError(t, err)
	_, err = inspector.Evict(patient(t), "r", fence.Token(dead.Header.Revision), "its process is dead", "")
	require.NoError(t, err)
	release(t, acquireAtLast(t, l, "r"))
}
