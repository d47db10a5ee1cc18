package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// An Inspector reads the number that grants get, and says of a key that holds none where it is.
func TestInspector_ReadsTheEpoch(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	i := newTestInspector(t, client, cfg)
	e, err := i.Epoch(patient(t))
	require.NoError(t, err)
	require.Equal(t, Epoch{Number: 1, Key: cfg.Prefix + "/epoch", Revision: e.Revision, ClusterID: e.ClusterID}, e)
	for text, number := range map[string]int64{"7": 7, "seven": 0} {
		put, err := client.Put(patient(t), e.Key, text)
		require.NoError(t, err)
		now, err := i.Epoch(patient(t))
		if number == 0 {
			requireReason(t, err, fence.InvalidEpoch)
		} else {
			require.NoError(t, err)
			require.EqualValues(t, number, acquire(t, newTestLocker(t, client, cfg), "r").Grant().Epoch)
		}
		require.Equal(t, number, now.Number)
		require.Equal(t, put.Header.Revision, now.KeyRevision)
		require.GreaterOrEqual(t, now.Revision, now.KeyRevision)
		require.Equal(t, e.ClusterID, now.ClusterID)
	}
}
