package etcd

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

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

// A client that was given a context goes on working when it ends, which it does
// when the program stops.
func TestClosedClient_IsNotConfusedWithAnEndedContext(t *testing.T) {
	t.Parallel()
	e := etcdserver.Shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}, Logger: zap.NewNop(), Context: ctx})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	l := newTestLocker(t, client, fresh(t))
	acquire(t, l, "r")
	id := l.sessions.Current().ID
	cancel()
	release(t, acquire(t, l, "other"))
	require.NoError(t, l.Close(over(t)))
	requireGone(t, etcdserver.Client(t), id)
}
