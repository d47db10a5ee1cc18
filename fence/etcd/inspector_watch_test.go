package etcd

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// watchLocks watches until the test ends.
func watchLocks(t testing.TB, client *clientv3.Client, cfg *Config) <-chan Change {
	t.Helper()
	changes := make(chan Change, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- newTestInspector(t, client, cfg).Watch(ctx, func(c Change) error {
			changes <- c
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	return changes
}

func requireChange(t testing.TB, changes <-chan Change, kind ChangeKind, token fence.Token) {
	t.Helper()
	got := etcdtest.Receive(t, changes)
	require.Equal(t, kind, got.Kind)
	require.Equal(t, token, got.Grant.Token)
}

func TestInspectorWatch_ShowsEachChange(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	changes := watchLocks(t, client, cfg)
	requireChange(t, changes, ChangeHolds, held.Grant().Token)

	got := acquiring(patient(t), b, "r")
	waits := etcdtest.Receive(t, changes)
	require.Equal(t, ChangeWaits, waits.Kind)
	impatient, giveUp := context.WithCancel(patient(t))
	gaveUp := acquiring(impatient, b, "r")
	last := etcdtest.Receive(t, changes)
	require.Equal(t, ChangeWaits, last.Kind)
	giveUp()
	require.Error(t, (<-gaveUp).err)
	requireChange(t, changes, ChangeGaveUp, last.Grant.Token)

	release(t, held)
	requireChange(t, changes, ChangeReleased, held.Grant().Token)
	requireChange(t, changes, ChangeHolds, waits.Grant.Token)
	require.Equal(t, waits.Grant, etcdtest.Receive(t, got).lease.Grant())
	_, err := client.Revoke(patient(t), b.sessions.Current().ID)
	require.NoError(t, err)
	requireChange(t, changes, ChangeLeaseEnded, waits.Grant.Token)
}

// What happened while the watch was cut off is compacted when it is back.
func TestInspectorWatch_GoesOnOverACompaction(t *testing.T) {
	t.Parallel()
	e, cfg := ownEtcd(t), fresh(t)
	link, err := netfault.New(strings.TrimPrefix(e.Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = link.Close() })
	client := dial(t, e.Endpoint())
	l := newTestLocker(t, client, cfg)
	held := acquire(t, l, "r")
	changes := watchLocks(t, dial(t, "http://"+link.Addr()), cfg)
	requireChange(t, changes, ChangeHolds, held.Grant().Token)

	mend := link.Cut(netfault.ToClient)
	release(t, held)
	again := acquire(t, l, "r")
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 1)
	_, err = client.Compact(patient(t), int64(again.Grant().Token))
	require.NoError(t, err)
	link.Reset()
	mend()
	requireChange(t, changes, ChangeReleased, held.Grant().Token)
	requireChange(t, changes, ChangeHolds, again.Grant().Token)
}
