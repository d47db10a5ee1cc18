package etcd

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// etcd is restored to a backup from before the holder's key was written, but after its
// session began, whose lease is in the backup. A holder that only renews must notice, or
// there would be two owners for as long as both renew.
func TestRestore_IsNoticedByAHolderThatOnlyRenews(t *testing.T) {
	t.Parallel()
	data, backup := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup")
	e, err := etcdserver.Start(patient(t), &etcdserver.Config{Dir: data})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), etcdtest.Patience)
		defer cancel()
		require.NoError(t, e.Stop(ctx))
	})
	cfg := fresh(t) // its time to live is far longer than the restore
	l := newTestLocker(t, dial(t, e.Endpoint()), cfg)
	release(t, acquire(t, l, "warm"))
	require.NoError(t, e.Kill())
	require.NoError(t, os.CopyFS(backup, os.DirFS(data)))
	require.NoError(t, e.Restart(patient(t)))
	for range 20 {
		release(t, acquire(t, l, "other"))
	}
	held := acquire(t, l, "r")

	require.NoError(t, e.Kill())
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.CopyFS(data, os.DirFS(backup)))
	require.NoError(t, e.Restart(patient(t)))
	require.Equal(t, fence.LossWentBack, lossOf(t, held))
}
