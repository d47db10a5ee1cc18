package testenv

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func TestEtcd_KeepsDataAndEndpointOverKillAndRestart(t *testing.T) {
	ctx := t.Context()
	e, err := StartEtcd(ctx, nil)
	require.NoError(t, err)
	client, err := e.Client(ctx)
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Put(ctx, "k", "v")
	require.NoError(t, err)
	lease, err := client.Grant(ctx, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, lease.TTL)
	require.NoError(t, e.Pause())
	require.NoError(t, e.Resume())
	require.NoError(t, e.Kill())
	require.NoError(t, e.Restart(ctx))
	got, err := client.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Kvs[0].Value))
	require.NoError(t, e.Stop(ctx))
	require.NoError(t, e.Stop(ctx))
	require.ErrorIs(t, e.Restart(ctx), ErrStopped)
}

func TestPostgres_KeepsDataAndDSNOverKillAndRestart(t *testing.T) {
	ctx := t.Context()
	p, err := StartPostgres(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, p.exec(ctx, "create table t(i int); insert into t values (1)"))
	require.NoError(t, p.Pause())
	require.NoError(t, p.Resume())
	require.NoError(t, p.Kill())
	require.NoError(t, p.Restart(ctx))
	conn, err := pgx.Connect(ctx, p.DSN())
	require.NoError(t, err)
	var i int
	require.NoError(t, conn.QueryRow(ctx, "select i from t").Scan(&i))
	require.NoError(t, conn.Close(ctx))
	require.NoError(t, p.Stop(ctx))
}

func TestDatabase_IsFresh(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), Database(t))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "create table t()")
	require.NoError(t, err)
	_, err = EtcdClient(t).Get(t.Context(), "x")
	require.NoError(t, err)
}
