package etcd

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func readEpoch(t testing.TB, i *Inspector) Epoch {
	t.Helper()
	e, err := i.Epoch(patient(t))
	require.NoError(t, err)
	return e
}

// The key is put only if it is as it was seen: also one that holds the same number again, or
// none that can be read.
func TestPutEpoch_OnlyOverWhatWasSeen_N20(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i := newTestInspector(t, client, cfg)
	none := readEpoch(t, i)
	require.NoError(t, i.MayPutEpoch(patient(t)))
	require.Equal(t, none.KeyRevision, readEpoch(t, i).KeyRevision, "nothing was written")
	put := func(seen Epoch, number int64) bool {
		t.Helper()
		done, err := i.PutEpoch(patient(t), seen, number)
		require.NoError(t, err)
		return done
	}
	require.True(t, put(none, 2))
	require.False(t, put(none, 3))
	two := readEpoch(t, i)
	require.EqualValues(t, 2, two.Number)
	require.Greater(t, two.KeyRevision, none.Revision)
	_, err := client.Put(patient(t), two.Key, "2")
	require.NoError(t, err)
	require.False(t, put(two, 3))
	_, err = client.Put(patient(t), two.Key, "two")
	require.NoError(t, err)
	unreadable, err := i.Epoch(patient(t))
	requireReason(t, err, fence.InvalidEpoch)
	require.Zero(t, unreadable.Number)
	require.True(t, put(unreadable, 7))
	require.EqualValues(t, 7, acquire(t, newTestLocker(t, client, cfg), "r").Grant().Epoch)
}

func TestPutEpoch_NeedsTheRight_HD8(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	e := startAuthEtcd(t, cfg.Prefix)
	lockers, operators := newTestInspector(t, e.as(t, "app", "app"), cfg), newTestInspector(t, e.root, cfg)
	requireReason(t, lockers.MayPutEpoch(patient(t)), fence.Denied)
	_, err := lockers.PutEpoch(patient(t), readEpoch(t, lockers), 2)
	requireReason(t, err, fence.Denied)
	require.NoError(t, operators.MayPutEpoch(patient(t)))
	key := cfg.Prefix + "/epoch"
	_, err = e.root.RoleGrantPermission(patient(t), "nobody", key, "", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	only := newTestInspector(t, e.as(t, "nobody", "nobody"), cfg)
	require.NoError(t, only.MayPutEpoch(patient(t)))
	done, err := only.PutEpoch(patient(t), readEpoch(t, only), 2)
	require.NoError(t, err)
	require.True(t, done)
}

// etcd is restored, or replaced, between the look and the put.
func TestPutEpoch_IntoAnotherStateIsAnError_HD5_HD6(t *testing.T) {
	t.Parallel()
	e, cfg := ownEtcd(t), fresh(t)
	client := dial(t, e.Endpoint())
	i := newTestInspector(t, client, cfg)
	file := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, e.Snapshot(patient(t), file))
	for range 20 {
		_, err := client.Put(patient(t), "x", "")
		require.NoError(t, err)
	}
	seen := readEpoch(t, i)
	require.NoError(t, e.Restore(patient(t), file, 0))
	_, err := i.PutEpoch(patient(t), seen, 2)
	requireReason(t, err, fence.WentBack)
	require.ErrorContains(t, err, "revision went back from")

	other := newTestInspector(t, dial(t, ownEtcd(t).Endpoint()), cfg)
	seen = readEpoch(t, i)
	seen.KeyRevision, seen.Revision = 0, 0
	_, err = other.PutEpoch(patient(t), seen, 2)
	requireReason(t, err, fence.WentBack)
	require.ErrorContains(t, err, "cluster id changed from")
}
