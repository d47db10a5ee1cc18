package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
)

// counting is an etcd and a database, with processes that count under a lock.
type counting struct {
	t     *testing.T
	etcd  *etcdserver.Server
	dsn   string
	flags []string // of fencectl, those of etcd first
	calls int      // that succeeded
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{t: t, etcd: startEtcd(t, nil), dsn: migrated(t)}
	c.flags = []string{"--etcd-endpoints", c.etcd.Endpoint(), "--database-url", c.dsn}
	require.NoError(t, execute(t, connect(t, c.dsn), "create table counter (n int); insert into counter values (0)"))
	return c
}

// process is a process's guard. Its client is soon back when etcd is, however long the restore took.
func (c *counting) process() *fencekit.Guard {
	c.t.Helper()
	client, err := clientv3.New(etcd.ClientConfig(c.etcd.Endpoint()))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = client.Close() })
	pool, err := pgxpool.New(c.t.Context(), c.dsn)
	require.NoError(c.t, err)
	c.t.Cleanup(pool.Close)
	g, err := fencekit.New(client, pool, &fencekit.Config{Lock: etcd.Config{TTL: time.Minute}})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

func (c *counting) call(g *fencekit.Guard) error {
	return guard.Do(c.t.Context(), g, "a", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update counter set n = n + 1")
		return err
	}, guard.Retryable())
}

// count requires that each of the processes can count.
func (c *counting) count(processes ...*fencekit.Guard) {
	c.t.Helper()
	for _, g := range processes {
		require.NoError(c.t, c.call(g))
		c.calls++
	}
}

// waits has a process wait for the lock, which another one of today holds in the restored etcd. then runs
// meanwhile.
func (c *counting) waits(waiter *fencekit.Guard, then func()) {
	c.t.Helper()
	client, err := c.etcd.Client(c.t.Context())
	require.NoError(c.t, err)
	defer client.Close()
	held, err := newLocker(c.t, client, etcd.Config{TTL: time.Minute}).Acquire(c.t.Context(), "a")
	require.NoError(c.t, err)
	waiting := make(chan error, 1)
	go func() { waiting <- c.call(waiter) }()
	require.Eventually(c.t, func() bool { return len(queued(c.t, "a", c.flags[:2])) == 2 }, time.Minute, 10*time.Millisecond)
	then()
	require.NoError(c.t, held.Release(c.t.Context()))
	require.NoError(c.t, <-waiting)
	c.calls++
}

// etcd is restored while processes run, keep a resource, and wait for one. After the bump all
// of them go on by themselves, those as well that saw the restore.
func TestEpochBump_NothingHasToBeRestarted(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, c.etcd.Snapshot(t.Context(), file))
	running, sawIt := c.process(), c.process()
	for range 5 {
		c.count(running, sawIt)
	}
	require.NoError(t, c.etcd.Restore(t.Context(), file, 0))
	away := new(fence.UnavailableError)
	require.ErrorAs(t, guard.Do(t.Context(), sawIt, "other", func(context.Context, pgx.Tx) error { return nil }), &away)
	require.Equal(t, fence.WentBack, away.Reason)
	rejected := new(storage.RejectedError)
	require.ErrorAs(t, c.call(c.process()), &rejected)

	got := fencectl(t, append([]string{"epoch", "show"}, c.flags...)...)
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stderr, `"fencectl epoch bump --reason TEXT"`)
	require.Contains(t, got.Stdout, "a fence's token is above etcd's revision")
	c.waits(c.process(), func() {
		got := fencectl(t, append([]string{"epoch", "bump", "--reason", "restored"}, c.flags...)...)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	})
	c.count(sawIt, running, c.process())
	var n int
	require.NoError(t, connect(t, c.dsn).QueryRow(t.Context(), "select n from counter").Scan(&n))
	require.Equal(t, c.calls, n)
	require.Equal(t, cli.ExitOK, fencectl(t, append([]string{"epoch", "show"}, c.flags...)...).Code)
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "verify", "--database-url", c.dsn).Code)
}
