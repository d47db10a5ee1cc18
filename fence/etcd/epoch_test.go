package etcd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func setEpoch(t testing.TB, client *clientv3.Client, l *Locker, value string) {
	t.Helper()
	_, err := client.Put(patient(t), l.cluster.Keys.Epoch(), value)
	require.NoError(t, err)
}

func TestEpoch_IsReadByEveryAcquire(t *testing.T) {
	t.Parallel()
	l, client := locker(t)
	for _, step := range []struct {
		value string
		want  int64
	}{{"", 1}, {"1", 1}, {"2", 2}, {"7", 7}, {"2147483647", fence.MaxEpoch}} {
		if step.value != "" {
			setEpoch(t, client, l, step.value)
		}
		for range 2 {
			le := acquire(t, l, "r")
			require.Equal(t, step.want, le.Grant().Epoch)
			release(t, le)
		}
	}
	setEpoch(t, client, l, "two")
	_, err := l.Acquire(patient(t), "r")
	requireReason(t, err, fence.InvalidEpoch)
	require.ErrorContains(t, err, l.cluster.Keys.Epoch()+` holds "two"`)
	awaitKeys(t, client, l.cluster.Keys.Prefix+"/locks/", 0)
}

func TestEpoch_ADeletedEpochStopsTheLockerUntilItIsRaised(t *testing.T) {
	t.Parallel()
	l, client := locker(t)
	setEpoch(t, client, l, "3")
	held := acquire(t, l, "held")
	_, err := client.Delete(patient(t), l.cluster.Keys.Epoch())
	require.NoError(t, err)
	requireWentBack(t, l, "epoch")
	_, err = l.Acquire(patient(t), "r")
	require.ErrorContains(t, err, "raise the epoch key "+l.cluster.Keys.Epoch()+" above 3: fencectl epoch bump --reason TEXT")
	require.Equal(t, fence.LossWentBack, lossOf(t, held))
	setEpoch(t, client, l, "3")
	requireWentBack(t, l, "epoch")
	setEpoch(t, client, l, "4")
	require.EqualValues(t, 4, acquire(t, l, "r").Grant().Epoch)
}

func requireWentBack(t testing.TB, l *Locker, what string) {
	t.Helper()
	for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.Acquire, l.TryAcquire} {
		_, err := acquire(patient(t), "r")
		require.ErrorIs(t, err, fence.ErrUnavailable)
		fault := new(cluster.WentBackError)
		require.ErrorAs(t, err, &fault)
		require.Equal(t, what, fault.What)
		require.Contains(t, err.Error(), l.cluster.Keys.Epoch())
	}
}

func TestWentBack_AnotherClusterStopsTheLocker(t *testing.T) {
	t.Parallel()
	first, second := ownEtcd(t), ownEtcd(t)
	cfg := fresh(t)
	cfg.TTL = 20 * time.Minute // no renewal that would find the lease gone first
	to := make(chan string, 1)
	to <- first.Endpoint()
	l := newTestLocker(t, dial(t, first.Endpoint(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		endpoint := <-to
		to <- endpoint
		return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(endpoint, "http://"))
	})), cfg)
	held := acquire(t, l, "held")
	release(t, acquire(t, l, "r"))
	<-to
	to <- second.Endpoint()
	require.NoError(t, first.Kill())
	_, err := l.Acquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrUnavailable)
	// Either the Txn under a lease that doesn't exist is answered first, or the check of etcd's state.
	require.Contains(t, []fence.LossReason{fence.LossExpired, fence.LossWentBack}, lossOf(t, held))
	requireWentBack(t, l, "cluster id")
}

// etcd is restored to a backup from before the holder's key was written, but after its
// session began, whose lease is in the backup. A holder that only renews must notice, or
// there would be two owners for as long as both renew. The next token would be one that was granted before.
func TestRestore_IsNoticedByAHolderThatOnlyRenews(t *testing.T) {
	t.Parallel()
	data, backup := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup")
	e := startEtcd(t, &etcdserver.Config{Dir: data})
	cfg := fresh(t)
	cfg.TTL = 20 * time.Minute // far longer than the restore
	l := newTestLocker(t, dial(t, e.Endpoint()), cfg)
	move := func(from, to string) {
		require.NoError(t, e.Kill())
		require.NoError(t, os.RemoveAll(to))
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		require.NoError(t, e.Restart(patient(t)))
	}
	release(t, acquire(t, l, "warm"))
	move(data, backup)
	for range 20 {
		release(t, acquire(t, l, "other"))
	}
	held := acquire(t, l, "r")
	move(backup, data)
	require.Equal(t, fence.LossWentBack, lossOf(t, held))
	requireWentBack(t, l, "revision")

	setEpoch(t, dial(t, e.Endpoint()), l, "2")
	again := acquire(t, l, "r")
	require.Less(t, again.Grant().Token, held.Grant().Token, "the numbers did go back")
	require.Positive(t, again.Grant().Compare(held.Grant()), "the epoch orders them")
}

// After the snapshot the lockers swap the resources, so it brings back keys that their sessions keep alive and no
// lease has. p only renews; q waits behind p's key, or grants nothing as etcd went back.
func TestRestore_KeysThatItBringsBackEndWithTheEpoch(t *testing.T) {
	for _, bump := range []uint64{0, 1_000_000_000} {
		t.Run(strconv.FormatUint(bump, 10), func(t *testing.T) {
			t.Parallel()
			e, cfg := startEtcd(t, nil), fresh(t)
			cfg.TTL = 20 * time.Minute // nothing expires
			p, q := newTestLocker(t, dial(t, e.Endpoint()), cfg), newTestLocker(t, dial(t, e.Endpoint()), cfg)
			a, b := acquire(t, p, "a"), acquire(t, q, "b")
			snapshot := filepath.Join(t.TempDir(), "snapshot")
			require.NoError(t, e.Snapshot(patient(t), snapshot))
			release(t, a)
			release(t, b)
			release(t, acquire(t, q, "a"))
			release(t, acquire(t, p, "b"))
			require.NoError(t, e.Restore(patient(t), snapshot, bump))
			var waits <-chan result
			if bump == 0 {
				requireWentBack(t, q, "revision")
			} else {
				waits = queued(t, q, "a", 2)
			}

			setEpoch(t, dial(t, e.Endpoint()), p, "2")
			if bump == 0 {
				waits = acquiring(patient(t), q, "a")
			} else {
				renewUntilItEnds(t, q.sessions.Current())
			}
			renewUntilItEnds(t, p.sessions.Current())
			got := granted(t, waits)
			if got.Grant().Epoch == 1 { // p's broken watch had it notice before q did
				require.Equal(t, fence.LossEpoch, lossOf(t, got))
				got = acquire(t, q, "a")
			}
			require.EqualValues(t, 2, got.Grant().Epoch)
			require.EqualValues(t, 2, acquire(t, p, "b").Grant().Epoch)
		})
	}
}

func renewUntilItEnds(t testing.TB, s *session.Session) {
	t.Helper()
	for limit := patient(t); s.Context().Err() == nil; {
		renewed := make(chan struct{})
		s.RenewNow(func() { close(renewed) })
		select {
		case <-renewed:
		case <-s.Context().Done():
		}
		require.NoError(t, limit.Err(), "the session goes on in another epoch")
	}
}
