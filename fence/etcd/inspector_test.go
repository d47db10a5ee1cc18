package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func newTestInspector(t testing.TB, client *clientv3.Client, cfg *Config) *Inspector {
	t.Helper()
	i, err := NewInspector(client, cfg)
	require.NoError(t, err)
	return i
}

func TestInspector_ShowsHoldersAndWaitersInOrder(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	began := time.Now().Truncate(time.Millisecond)
	i := newTestInspector(t, client, cfg)
	free, err := i.Locks(patient(t))
	require.NoError(t, err)
	require.Empty(t, free.Queues)

	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "sku/42")
	other := acquire(t, b, "a b")
	acquiring(patient(t), b, "sku/42")
	awaitKeys(t, client, a.cluster.Keys.Queue("sku/42"), 2)
	_, err = client.Put(patient(t), a.cluster.Keys.Locks()+"%zz/1", "of no locker")
	require.NoError(t, err)

	all, err := i.Locks(patient(t))
	require.NoError(t, err)
	require.EqualValues(t, 1, all.Epoch)
	locks := all.Queues
	require.Len(t, locks, 2)
	require.Equal(t, "a b", locks[0].Resource)
	require.Equal(t, other.Grant(), locks[0].Queue[0].Grant)
	one, err := i.Lock(patient(t), "sku/42")
	require.NoError(t, err)
	require.Len(t, one.Queue, 2)
	require.Equal(t, held.Grant(), one.Queue[0].Grant)
	require.Equal(t, held.Grant(), locks[1].Queue[0].Grant)
	require.Greater(t, one.Queue[1].Grant.Token, held.Grant().Token)
	require.NoError(t, one.Queue[1].Grant.Validate())
	require.NotEqual(t, held.Grant().Holder, one.Queue[1].Grant.Holder)
	require.Greater(t, held.Grant().Token, fence.Token(free.Revision))
	require.GreaterOrEqual(t, fence.Token(all.Revision), one.Queue[1].Grant.Token)
	for _, place := range one.Queue {
		require.InDelta(t, cfg.TTL, place.LeaseLeft, float64(cfg.TTL))
		require.Positive(t, place.LeaseLeft)
		require.WithinRange(t, place.Queued, began, time.Now())
	}
}

func TestNewInspector_RejectsWhatItCantRead(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	for _, cfg := range []*Config{{MutexKeys: true}, {Prefix: "a/"}, {RequestTimeout: -1}} {
		_, err := NewInspector(client, cfg)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	_, err := NewInspector(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)
	closed := dial(t, etcdserver.Shared(t).Endpoint())
	i := newTestInspector(t, closed, nil)
	require.NoError(t, closed.Close())
	_, err = i.Locks(patient(t))
	require.ErrorIs(t, err, fence.ErrUnavailable)
}
