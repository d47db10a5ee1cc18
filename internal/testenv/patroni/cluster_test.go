package patroni_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// bounded ends a test that hangs; no machine needs that long.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, ctx context.Context, cfg *patroni.Config) *patroni.Cluster {
	t.Helper()
	etcd, err := etcdserver.StartCluster(ctx, 3, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcd.Stop(context.Background())) })
	c, err := patroni.Start(ctx, etcd.Endpoints(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return c
}

func exec(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

func count(t *testing.T, ctx context.Context, dsn string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.NoError(t, conn.QueryRow(ctx, "select count(*) from t").Scan(&n))
	return n
}

// The primary is cut off, and switched over. Each time another takes over on the next timeline,
// both addresses lead to it, and the old one comes back as a standby.
func TestCluster_ReplacesItsPrimary(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := start(t, ctx, &patroni.Config{Synchronous: true})
	require.NoError(t, exec(ctx, c.DSN(), "create table t (n int primary key)"))
	rows := 0
	for _, fault := range []patroni.Fault{patroni.CutOff, patroni.SwitchedOver} {
		old, before, err := c.Leader(ctx)
		require.NoError(t, err)
		require.NoError(t, fault.Inject(ctx, c, old), fault.Name)
		leader, timeline, err := c.LeaderAfter(ctx, old)
		require.NoError(t, err, fault.Name)
		require.Equal(t, before+1, timeline, fault.Name)
		for _, dsn := range []string{c.DSN(), leader.DSN()} {
			rows++ // what has failed may have taken effect
			insert := fmt.Sprintf("insert into t values (%d) on conflict do nothing", rows)
			require.NoError(t, process.Poll(ctx, func(ctx context.Context) error { return exec(ctx, dsn, insert) }))
		}
		require.NoError(t, fault.Revert(ctx, old), fault.Name)
		require.NoError(t, c.Settled(ctx), fault.Name)
		require.Equal(t, rows, count(t, ctx, c.DirectDSN()), fault.Name)
		for count(t, ctx, old.DSN()) != rows { // until it has replayed what it has received
			require.NoError(t, ctx.Err(), fault.Name)
		}
	}
}
