package pgserver

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

func TestServer_CopyOfItsDataIsPutBack(t *testing.T) {
	ctx := testContext(t)
	p := startPostgres(t, &Config{Local: true})
	require.NoError(t, p.exec(ctx, "create table t as select 1 as i"))
	volume, err := p.CopyData(ctx)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, p.exec(ctx, "update t set i = 2"))
		require.Equal(t, 2, query[int](t, p.DSN(), "select i from t"))
		require.NoError(t, p.PutBack(ctx, volume))
		require.Equal(t, 1, query[int](t, p.DSN(), "select i from t"))
	}
	other := startPostgres(t, &Config{Local: true})
	require.ErrorContains(t, other.PutBack(ctx, volume), "another server's")
}

func TestServer_RecoversToAPointInTime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p, err := Start(ctx, &Config{Local: true, Settings: map[string]string{"archive_mode": "on"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(context.Background())) })
	require.NoError(t, p.Archive(ctx))
	base, err := p.BaseBackup(ctx)
	require.NoError(t, err)
	require.NoError(t, p.exec(ctx, "create table before ()"))
	require.NoError(t, p.exec(ctx, "select pg_create_restore_point('here')"))
	require.NoError(t, p.exec(ctx, "create table after ()"))
	require.NoError(t, p.RecoverTo(ctx, base, "recovery_target_name = 'here'\nrecovery_target_action = 'promote'"))
	require.NoError(t, p.exec(ctx, "insert into before default values"))
	require.ErrorContains(t, p.exec(ctx, "select from after"), "42P01")
}

func TestStandby_FollowsUntilItIsCutOffAndIsPromoted(t *testing.T) {
	ctx := testContext(t)
	primary := startPostgres(t, &Config{Local: true})
	require.NoError(t, primary.exec(ctx, "create table t as select 1 as i"))
	standby, err := StartStandby(ctx, primary, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop(context.Background())) })
	require.NoError(t, primary.AwaitStandby(ctx))
	require.NoError(t, primary.exec(ctx, "set synchronous_commit = remote_apply; update t set i = 2"))
	require.Equal(t, 2, query[int](t, standby.DSN(), "select i from t"))
	require.True(t, query[bool](t, standby.DSN(), "select pg_is_in_recovery()"))

	require.NoError(t, standby.StopStreaming(ctx))
	require.NoError(t, primary.exec(ctx, "set synchronous_commit = local; update t set i = 3"))
	require.NoError(t, standby.Promote(ctx))
	require.NoError(t, standby.exec(ctx, "update t set i = i + 10"))
	require.Equal(t, 12, query[int](t, standby.DSN(), "select i from t"))
}

func TestServer_DiskIsFullUntilItIsNot(t *testing.T) {
	ctx := testContext(t)
	p := startPostgres(t, &Config{Local: true})
	require.NoError(t, p.exec(ctx, "create table t (s text); alter table t alter s set storage plain"))
	const fill = "insert into t select repeat('x', 8000) from generate_series(1, 3000)"
	require.NoError(t, p.LimitFiles(ctx, 16<<20+4096))
	require.ErrorContains(t, p.exec(ctx, fill), "53100")
	require.NoError(t, p.exec(ctx, "create table other ()"))
	require.NoError(t, p.UnlimitFiles(ctx))
	require.NoError(t, p.exec(ctx, fill))

	require.NoError(t, p.LimitFiles(ctx, 4096))
	require.Error(t, p.exec(ctx, "create table another ()"))
	require.NoError(t, p.Restart(ctx))
	require.NoError(t, p.exec(ctx, "create table another ()"))
	require.Equal(t, 3000, query[int](t, p.DSN(), "select count(*) from t"))
}

func TestServer_ThatIsNotLocalSaysSo(t *testing.T) {
	ctx := testContext(t)
	p := &Server{controller: process.External(DSNVar)}
	_, err := p.CopyData(ctx)
	require.ErrorIs(t, err, errNotLocal)
	require.ErrorIs(t, p.PutBack(ctx, nil), errNotLocal)
	require.ErrorIs(t, p.LimitFiles(ctx, 1), errNotLocal)
	_, err = StartStandby(ctx, p, nil)
	require.ErrorIs(t, err, errNotLocal)
	t.Setenv(DSNVar, "postgres://127.0.0.1:1/x")
	require.True(t, strings.HasPrefix(startPostgres(t, &Config{Local: true}).Source(), "local "))
}
