package etcd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// Closing in the wrong order is an easy mistake. Every call fails at once, without a
// request.
func TestClosedClient_EveryCallSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	cfg, admin := fresh(t), dial(t, endpoint)
	acquire(t, newTestLocker(t, admin, cfg), "theirs")
	var log bytes.Buffer // read after Close, which ends all writers
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := newCalls()
	client := dial(t, endpoint, c.options()...)
	l := newTestLocker(t, client, cfg)
	held, released := acquire(t, l, "held"), acquire(t, l, "released")
	waiting := acquiring(patient(t), l, "theirs")
	awaitKeys(t, admin, l.cluster.Keys.Queue("theirs"), 2)
	awaitWatching(t, l, "theirs")
	c.since()
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
	require.Empty(t, c.since())
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "closed before the locker")
}

func requireClosedClient(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.ErrorIs(t, err, cluster.ErrClientClosed)
}
