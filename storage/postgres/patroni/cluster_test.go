package patroni_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	servers "github.com/fencekit/fencekit/internal/test/testenv/patroni"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
	"github.com/fencekit/fencekit/storage/postgres"
	"github.com/fencekit/fencekit/storage/postgres/patroni"
)

// twoPrimaries is a cluster whose pools have all nodes in their DSN, the first primary first, as pools without an
// HAProxy do.
type twoPrimaries struct {
	t       *testing.T
	cluster *servers.Cluster
	old     *servers.Node
	dsn     string
	primary *patroni.Primary
}

func startCluster(t *testing.T) *twoPrimaries {
	t.Helper()
	etcd := ownEtcd(t)
	cluster, err := servers.Start(t.Context(), []string{etcd.Endpoint()}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
	old, _, err := cluster.Leader(t.Context())
	require.NoError(t, err)
	hosts, names := []string{old.Address(0)}, map[string]string{}
	for _, n := range cluster.Nodes() {
		names[fmt.Sprint(n.Port(0))] = n.Name
		if n != old {
			hosts = append(hosts, n.Address(0))
		}
	}
	// A node's conn_url leads through the link that cuts it off.
	member := func(ctx context.Context, conn *pgconn.PgConn) (string, error) {
		results, err := conn.Exec(ctx, "select inet_server_port()").ReadAll()
		if err != nil {
			return "", err
		}
		return names[string(results[0].Rows[0][0])], nil
	}
	primary, err := patroni.Watch(clientOf(t, etcd), patroni.Config{Scope: "fencekit", MaxAge: byWatch, Member: member})
	require.NoError(t, err)
	t.Cleanup(primary.Close)
	dsn := "postgres://postgres@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable&target_session_attrs=read-write"
	return &twoPrimaries{t, cluster, old, dsn, primary}
}

func (c *twoPrimaries) guardOn(dsn string, options ...func(*pgxpool.Config)) *guard.Guard[pgx.Tx] {
	c.t.Helper()
	store, err := postgres.NewStore(open(c.t, dsn, options...), &postgres.Config{StatementTimeout: time.Minute})
	require.NoError(c.t, err)
	return guardtest.New(c.t, store)
}

func (c *twoPrimaries) has(on *servers.Node, key string) (there bool) {
	c.t.Helper()
	require.NoError(c.t, open(c.t, on.DSN()).QueryRow(c.t.Context(), "select exists (select from item where key = $1)", key).Scan(&there))
	return there
}

func insert(key string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into item values ($1)", key)
		return err
	}
}

// The Patroni of the primary has stopped; its Postgres accepts writes beside the elected one. Without the check what
// a guard was told there is lost. With it only a transaction that had begun before the election is.
func TestCluster_TheOldPrimaryIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	direct := open(t, c.old.DSN())
	_, err := postgres.Migrate(ctx, direct, "")
	require.NoError(t, err)
	_, err = direct.Exec(ctx, "create table item (key text primary key)")
	require.NoError(t, err)

	control, checked, stuck := c.guardOn(c.dsn), c.guardOn(c.dsn, c.primary.Configure), c.guardOn(c.old.DSN(), c.primary.Configure)
	for name, g := range map[string]*guard.Guard[pgx.Tx]{"control": control, "checked": checked, "stuck": stuck} {
		require.NoError(t, guard.Do(ctx, g, name, insert(name+" before"))) // keeps its grant
	}
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- guard.Do(ctx, checked, "open", func(ctx context.Context, tx pgx.Tx) error {
			err := insert("open")(ctx, tx)
			close(begun)
			<-goOn
			return err
		})
	}()
	<-begun
	before, err := c.primary.Leader()
	require.NoError(t, err)
	require.Equal(t, c.old.Name, before.Name)
	require.NoError(t, c.cluster.Settled(ctx))
	require.NoError(t, process.Poll(ctx, func(ctx context.Context) (err error) {
		var caughtUp bool
		if err = direct.QueryRow(ctx, "select bool_and(replay_lsn >= pg_current_wal_lsn()) from pg_stat_replication").Scan(&caughtUp); err == nil && !caughtUp {
			err = errors.New("a standby lags")
		}
		return err
	}))

	require.NoError(t, c.old.PausePatroni())
	elected, _, err := c.cluster.LeaderAfter(ctx, c.old)
	require.NoError(t, err)
	require.NoError(t, process.Poll(ctx, func(context.Context) error {
		switch after, err := c.primary.Leader(); {
		case err != nil:
			return err
		case after.Name != elected.Name || after.Generation <= before.Generation:
			return fmt.Errorf("%v is followed by %v, want %s", before, after, elected.Name)
		}
		return nil
	}))

	require.NoError(t, guard.Do(ctx, control, "control", insert("control")))
	require.True(t, c.has(c.old, "control"), "acknowledged")
	require.False(t, c.has(elected, "control"), "and lost")

	require.NoError(t, guard.Do(ctx, checked, "checked", insert("checked"), guard.Retryable()))
	require.False(t, c.has(c.old, "checked"))
	require.True(t, c.has(elected, "checked"))
	var refused *patroni.RefusedError
	require.ErrorAs(t, guard.Do(ctx, stuck, "stuck", insert("stuck"), guard.Retryable()), &refused)
	require.Equal(t, c.old.Name, refused.Server)
	require.Equal(t, elected.Name, refused.Leader.Name)
	require.False(t, c.has(c.old, "stuck"))

	close(goOn)
	require.NoError(t, <-ended)
	require.True(t, c.has(c.old, "open"), "what had begun goes on")
	require.False(t, c.has(elected, "open"))
}
