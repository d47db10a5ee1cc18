package etcd

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// requireGaveUp checks the error of an Acquire that waited for a holder.
func requireGaveUp(t testing.TB, err error, holder string) {
	t.Helper()
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errTired)
	require.NotErrorIs(t, err, fence.ErrUnavailable)
	locked := new(fence.LockedError)
	require.ErrorAs(t, err, &locked)
	require.Equal(t, fence.LockedError{Resource: "r", Holder: holder}, *locked)
	require.Contains(t, err.Error(), "fence: r is locked by "+holder)
	require.NotContains(t, err.Error(), "acquire r", "the caller says so itself")
}

var errTired = errors.New("tired")

func TestAcquire_ThatGivesUpNamesTheHolder(t *testing.T) {
	t.Parallel()
	client, cfg := etcdserver.Client(t), fresh(t)
	a, b, c := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	second := acquiring(patient(t), b, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 2)
	ctx, cancel := context.WithCancelCause(patient(t))
	third := acquiring(ctx, c, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 3)
	awaitWatching(t, c, "r")
	cancel(errTired)
	requireGaveUp(t, (<-third).err, held.Grant().Holder)
	release(t, held)
	require.NoError(t, (<-second).err)
}

func TestAcquire_ThatGivesUpInItsOwnProcessSaysSo(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), fresh(t))
	held := acquire(t, l, "r")
	queued := make(chan struct{})
	held.AfterContended(func() { close(queued) })
	ctx, cancel := context.WithCancelCause(patient(t))
	waiting := acquiring(ctx, l, "r")
	<-queued
	cancel(errTired)
	err := (<-waiting).err
	requireGaveUp(t, err, held.Grant().Holder)
	require.Contains(t, err.Error(), "waiting for another call of this process")
}
