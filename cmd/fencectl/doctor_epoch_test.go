package main

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestDoctor_FindsARolledBackEtcd(t *testing.T) {
	t.Parallel()
	i := onShared(t, startEtcd(t, nil))
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, i.etcd.Snapshot(t.Context(), snapshot))
	i.write("sku/1", "sku/2")
	require.NoError(t, i.etcd.Restore(t.Context(), snapshot, 0))
	found := i.finds(cli.ExitViolated, "etcd-went-back")
	require.Regexp(t, `^2 fences: sku/\d \(token \d+ of \S+\), sku/\d \(token \d+ of \S+\); etcd is at revision \d+$`, found.Seen)
	i.mend(found)
	i.findsNothing()
	i.connect()
	i.write("sku/1", "sku/2")
	i.findsNothing()
}

func TestDoctor_FindsAnAbsurdToken(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	store, err := postgres.NewStore(i.pool, nil)
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/1", Epoch: 1, Token: 1 << 39, Holder: "forger-1"}})
	require.NoError(t, err)
	require.ErrorIs(t, i.try("sku/1"), guard.ErrStaleToken)
	found := i.finds(cli.ExitViolated, "fence-token-absurd")
	require.Contains(t, found.Seen, "1 fence: sku/1 (token 549755813888 of forger-1); etcd is at revision ")
	shown := fencectl(t, append([]string{"epoch", "show"}, i.flags[:6]...)...)
	require.Equal(t, cli.ExitViolated, shown.Code)
	require.Contains(t, shown.Stderr, "a false grant has claimed the highest resource")
	i.mend(found)
	i.findsNothing()
	i.write("sku/1")
}

func TestDoctor_FindsADriftOfEpochs(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	put := func(epoch string) {
		_, err := i.client.Put(t.Context(), i.prefix+"/epoch", epoch)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		make func()
		id   string
		code int
	}{
		{func() { i.sql("update fence.setting set epoch = 3") }, "epoch-behind", cli.ExitNotReady},
		{func() { put("1000") }, "epoch-jump", cli.ExitNotReady},
		{func() {
			held, err := newLocker(t, i.client, etcd.Config{Prefix: i.prefix}).Acquire(t.Context(), "sku/2")
			require.NoError(t, err)
			t.Cleanup(func() { _ = held.Release(context.Background()) })
			i.sql(fmt.Sprintf("select fence.claim(array[encode('sku/2', 'hex')], array[%d]::bigint[], array[%d]::bigint[], array[encode('another', 'hex')], 1)", held.Grant().Epoch, held.Grant().Token))
		}, "fence-collision", cli.ExitViolated},
	} {
		c.make()
		i.mend(i.finds(c.code, c.id))
		i.findsNothing()
	}
}

// hold keeps sku/1 owned, writes, lets lose run, and writes again under the same grant: that write
// is rejected, because the database no longer has the first one.
func (i *installation) hold(lose func()) {
	i.t.Helper()
	nothing := func(context.Context, pgx.Tx) error { return nil }
	err := guard.Hold(i.t.Context(), i.guard, "sku/1", func(ctx context.Context, r guard.Runner[pgx.Tx]) error {
		if err := guard.Do(ctx, r, "sku/1", nothing); err != nil {
			return err
		}
		lose()
		return guard.Do(ctx, r, "sku/1", nothing)
	})
	require.ErrorIs(i.t, err, guard.ErrFailedOver)
}

func TestDoctor_FindsARolledBackPostgres(t *testing.T) {
	t.Parallel()
	i, pg := onOwn(t, nil)
	volume, err := pg.CopyData(t.Context())
	require.NoError(t, err)
	i.pool.Reset()
	i.hold(func() {
		require.NoError(t, pg.PutBack(t.Context(), volume))
		i.pool.Reset()
	})
	found := i.finds(cli.ExitViolated, "database-went-back")
	require.Contains(t, found.Seen, "holders of 1 resource: sku/1 had seen more")
	i.mend(found)
	i.findsNothing()
	i.write("sku/1")
	i.findsNothing()
}
