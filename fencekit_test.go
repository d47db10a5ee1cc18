package fencekit_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
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

// newLocker returns a Locker whose keys in etcd are the test's own.
func newLocker(t *testing.T, client *clientv3.Client) (l fencekit.Locker, prefix string) {
	t.Helper()
	prefix = fmt.Sprintf("%s-%x", t.Name(), rand.Uint64())
	l, err := etcd.New(client, &etcd.Config{Prefix: prefix})
	require.NoError(t, err)
	return l, prefix
}

func newGuard(t *testing.T, pool *pgxpool.Pool, cfg *fencekit.Config) *fencekit.Client {
	t.Helper()
	g, err := fencekit.New(pool, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // what a test that failed has left running is cut off
		_ = g.Close(ended)
	})
	return g
}

func TestMigrate_NothingElseDoesAndWithoutItCallsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "shop"} {
		pool := emptyPool(t)
		g := newGuard(t, pool, &fencekit.Config{Store: postgres.Config{Schema: schema}})
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
	locker, prefix := newLocker(t, client)
	g := newGuard(t, pool, &fencekit.Config{Locker: locker})
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
	locker, _ := newLocker(t, etcdserver.Client(t))
	g := newGuard(t, pool, &fencekit.Config{Locker: locker})
	_, err := pool.Exec(t.Context(), "update fence.setting set epoch = 2, token = 0")
	require.NoError(t, err)
	for _, err := range []error{g.Check(t.Context()), guard.Do(t.Context(), g, "a", nothing)} {
		require.ErrorIs(t, err, guard.ErrWrongLockService)
		require.ErrorContains(t, err, "raise the epoch: fencectl epoch bump --reason TEXT")
	}
	inPostgres := newGuard(t, pool, nil)
	require.NoError(t, inPostgres.Check(t.Context()))
	require.NoError(t, guard.Do(t.Context(), inPostgres, "a", nothing))
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
	g := newGuard(t, pool, &fencekit.Config{PruneEvery: time.Second, Logger: slog.New(slog.NewTextHandler(said, nil))})
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

// as is a pool on the database of another, with a new login that may do what rights say.
func as(t *testing.T, admin *pgxpool.Pool, rights string) *pgxpool.Pool {
	t.Helper()
	cfg := admin.Config()
	cfg.ConnConfig.User = fmt.Sprintf("login-%x", rand.Uint64())
	login := pgx.Identifier{cfg.ConnConfig.User}.Sanitize()
	_, err := admin.Exec(t.Context(), "create role "+login+" login "+rights)
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		pool.Close()
		_, err := admin.Exec(context.Background(), "drop owned by "+login+"; drop role "+login)
		require.NoError(t, err)
	})
	return pool
}

// As on a managed service: the owner of the database may create roles, and is no superuser; nobody has pg_signal_backend.
func TestNew_NeedsNoSuperuser(t *testing.T) {
	t.Parallel()
	admin := emptyPool(t)
	owner := as(t, admin, "createrole")
	database := pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize()
	_, err := admin.Exec(t.Context(), "alter database "+database+" owner to "+pgx.Identifier{owner.Config().ConnConfig.User}.Sanitize())
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "alter database "+database+" owner to current_user")
		require.NoError(t, err)
	})
	of := newGuard(t, owner, nil)
	require.ErrorIs(t, guard.Do(t.Context(), of, "sku/42", nothing), postgres.ErrNotReady)
	require.NoError(t, of.Migrate(t.Context()))
	roles := postgres.Roles{App: fmt.Sprintf("app-%x", rand.Uint64())}
	require.NoError(t, postgres.GrantRoles(t.Context(), owner, "", roles))
	app := pgx.Identifier{roles.App}.Sanitize()
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "drop owned by "+app+"; drop role "+app)
		require.NoError(t, err)
	})
	_, err = owner.Exec(t.Context(), "create table counter (n int not null); insert into counter values (0); grant select, update on counter to "+app)
	require.NoError(t, err)

	cfg := &fencekit.Config{Guard: guard.Config{KeepFor: -1}} // each call acquires anew
	a, b := newGuard(t, as(t, admin, "in role "+app), cfg), newGuard(t, as(t, admin, "in role "+app), cfg)
	require.NoError(t, a.Check(t.Context()))
	var running sync.WaitGroup
	for _, g := range []*fencekit.Client{a, b, a, b} {
		running.Go(func() {
			for range 5 {
				err := guard.Do(t.Context(), g, "counter", func(ctx context.Context, tx pgx.Tx) error {
					var n int
					if err := tx.QueryRow(ctx, "select n from counter").Scan(&n); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "update counter set n = $1", n+1)
					return err
				}, guard.Retryable())
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	var n int
	require.NoError(t, owner.QueryRow(t.Context(), "select n from counter").Scan(&n))
	require.Equal(t, 20, n)
}

// Its process doesn't know yet that the lock service has forgotten it.
func TestElection_ADeposedLeadersWriteIsRejected(t *testing.T) {
	t.Parallel()
	pool := migratedPool(t)
	campaign := func(value string) (*fencekit.Client, fence.Leadership) {
		locker, err := pglock.New(pool, &pglock.Config{TTL: time.Hour})
		require.NoError(t, err)
		g := newGuard(t, pool, &fencekit.Config{Locker: locker})
		election, err := g.Election("leader")
		require.NoError(t, err)
		led, err := election.Campaign(t.Context(), value)
		require.NoError(t, err)
		require.NoError(t, guard.Do(t.Context(), g.UnderLease(led), "leader", nothing))
		return g, led
	}
	a, first := campaign("a")
	_, err := pool.Exec(t.Context(), "select fence.lock_end(id) from fence.lock_session where id = (select session from fence.lock)")
	require.NoError(t, err)
	_, second := campaign("b")
	require.ErrorIs(t, guard.Do(t.Context(), a.UnderLease(first), "leader", nothing), guard.ErrStaleToken)
	require.ErrorIs(t, first.Proclaim(t.Context(), "late"), fence.ErrLeaseLost)
	require.NoError(t, second.Resign(t.Context()))
}
