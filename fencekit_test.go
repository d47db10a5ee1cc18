package fencekit_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// nothing is a function that neither reads nor writes.
func nothing(context.Context, pgx.Tx) error { return nil }

// emptyPool is a pool on a fresh database.
func emptyPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgserver.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// migratedPool is a pool on a fresh database with Fencekit's tables.
func migratedPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := emptyPool(t)
	_, err := postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	return pool
}

// newGuard returns a Guard whose keys in etcd are the test's own.
func newGuard(t *testing.T, client *clientv3.Client, pool *pgxpool.Pool, cfg fencekit.Config) (g *fencekit.Guard, prefix string) {
	t.Helper()
	cfg.Lock.Prefix = fmt.Sprintf("%s-%x", t.Name(), rand.Uint64())
	g, err := fencekit.New(client, pool, &cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // what a test that failed has left running is cut off
		_ = g.Close(ended)
	})
	return g, cfg.Lock.Prefix
}

func TestMigrate_NothingElseDoesAndWithoutItCallsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "shop"} {
		pool := emptyPool(t)
		g, _ := newGuard(t, etcdserver.Client(t), pool, fencekit.Config{Store: postgres.Config{Schema: schema}})
		for _, err := range []error{g.Check(t.Context()), guard.Do(t.Context(), g, "a", nothing)} {
			requireNotReady(t, err, postgres.NotMigrated)
			require.ErrorContains(t, err, "Migrate")
			require.ErrorContains(t, err, "fencectl migrate up")
		}
		var made int
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from pg_class where relkind = 'r' and relnamespace::regnamespace::text !~ '^(pg_|information)'").Scan(&made))
		require.Zero(t, made, "tables")

		require.NoError(t, g.Migrate(t.Context()))
		require.NoError(t, g.Migrate(t.Context()), "again")
		require.NoError(t, g.Check(t.Context()))
		require.NoError(t, guard.Do(t.Context(), g, "a", nothing))
	}
}

// Check is a readiness probe: what has been well once is asked again.
func TestCheck_FailsWhenAServerIsNotAsItWas(t *testing.T) {
	t.Parallel()
	client, pool := etcdserver.Client(t), migratedPool(t)
	g, prefix := newGuard(t, client, pool, fencekit.Config{})
	require.NoError(t, g.Check(t.Context()))
	_, err := client.Put(t.Context(), prefix+"/epoch", "none")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "drop schema fence cascade")
	require.NoError(t, err)
	err = g.Check(t.Context())
	require.ErrorIs(t, err, fence.ErrUnavailable)
	requireNotReady(t, err, postgres.NotMigrated)
}

// Every claim would be rejected, and calls and Check say what raises the epoch of etcd. Locks in Postgres follow.
func TestCheck_FailsWhenTheDatabaseHasSeenAHigherEpoch(t *testing.T) {
	t.Parallel()
	pool := migratedPool(t)
	g, _ := newGuard(t, etcdserver.Client(t), pool, fencekit.Config{})
	_, err := pool.Exec(t.Context(), "update fence.setting set epoch = 2, token = 0")
	require.NoError(t, err)
	for _, err := range []error{g.Check(t.Context()), guard.Do(t.Context(), g, "a", nothing)} {
		require.ErrorIs(t, err, guard.ErrWrongLockService)
		require.ErrorContains(t, err, "raise the epoch: fencectl epoch bump --reason TEXT")
	}
	inPostgres, err := fencekit.NewOnPostgres(pool, nil)
	require.NoError(t, err)
	require.NoError(t, inPostgres.Check(t.Context()))
	require.NoError(t, guard.Do(t.Context(), inPostgres, "a", nothing))
	require.NoError(t, inPostgres.Close(t.Context()))
}

// requireNotReady requires that err says that the database is not ready for a reason.
func requireNotReady(t testing.TB, err error, want postgres.NotReadyReason) {
	t.Helper()
	notReady := new(postgres.NotReadyError)
	require.ErrorAs(t, err, &notReady)
	require.Equal(t, want, notReady.Reason)
	require.ErrorIs(t, err, postgres.ErrNotReady)
}

// A Guard that is to prune goes on after a failure, says what it did, and stops when it is
// closed. That no goroutine is left is seen by TestMain.
func TestGuard_PrunesRegularlyUntilClose(t *testing.T) {
	t.Parallel()
	said := make(lines, 1000)
	pool := emptyPool(t)
	g, _ := newGuard(t, awayClient(t), pool, fencekit.Config{PruneEvery: time.Second, Logger: slog.New(slog.NewTextHandler(said, nil))})
	require.Contains(t, <-said, "pruning failed") // there are no tables yet
	_, err := postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `update fence.setting set history_keep = '1 hour';
		insert into fence.rejection (resource, reason, stage, epoch, token, holder, current_epoch, current_token, current_holder, last_at)
		values ('a', 'stale', 'seal', 1, 1, 'a', 1, 2, 'b', now() - interval '2 hours')`)
	require.NoError(t, err)
	for !strings.Contains(<-said, "pruned.rejections=1") { // Close may cut off a prune, which then says nothing
	}
	require.NoError(t, g.Close(t.Context()))
	require.NoError(t, g.Close(t.Context()), "again")
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from fence.rejection").Scan(&left))
	require.Zero(t, left)
}

// lines has what is written to it.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}
