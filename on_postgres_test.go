package fencekit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newOnPostgres(t *testing.T, pool *pgxpool.Pool, cfg *fencekit.Config) *fencekit.Guard {
	t.Helper()
	g, err := fencekit.NewOnPostgres(pool, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
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
func TestNewOnPostgres_NeedsNoEtcdAndNoSuperuser(t *testing.T) {
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
	of := newOnPostgres(t, owner, nil)
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
	a, b := newOnPostgres(t, as(t, admin, "in role "+app), cfg), newOnPostgres(t, as(t, admin, "in role "+app), cfg)
	require.NoError(t, a.Check(t.Context()))
	var running sync.WaitGroup
	for _, g := range []*fencekit.Guard{a, b, a, b} {
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

// A deposed leader's write is rejected, as with etcd.
func TestNewOnPostgres_ElectsLeaders(t *testing.T) {
	t.Parallel()
	pool := migratedPool(t)
	a, b := newOnPostgres(t, pool, nil), newOnPostgres(t, pool, nil)
	elections := make([]fence.Election, 2)
	for i, g := range []*fencekit.Guard{a, b} {
		var err error
		elections[i], err = g.Election("leader")
		require.NoError(t, err)
	}
	_, err := elections[1].Leader(t.Context())
	require.ErrorIs(t, err, fence.ErrNoLeader)
	first, err := elections[0].Campaign(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, first.Proclaim(t.Context(), "a again"))
	for seen, err := range elections[1].Observe(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, fence.Leader{Grant: first.Grant(), Value: "a again"}, seen)
		break
	}
	require.NoError(t, guard.Do(t.Context(), a.UnderLease(first), "leader", nothing))
	_, err = pool.Exec(t.Context(), "select fence.lock_end(id) from fence.lock_session where id = (select session from fence.lock)")
	require.NoError(t, err)
	second, err := elections[1].Campaign(t.Context(), "b")
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), b.UnderLease(second), "leader", nothing))
	require.Error(t, guard.Do(t.Context(), a.UnderLease(first), "leader", nothing))
	require.ErrorIs(t, first.Proclaim(t.Context(), "late"), fence.ErrLeaseLost)
	seen, err := elections[0].Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "b", seen.Value)
	require.NoError(t, second.Resign(t.Context()))
}

func TestNewOnPostgres_RejectsSettingsOfEtcd(t *testing.T) {
	t.Parallel()
	pool, _ := awayPool(t)
	for _, lock := range []etcd.Config{{Prefix: "p"}, {MutexKeys: true}, {TTL: 1}} {
		_, err := fencekit.NewOnPostgres(pool, &fencekit.Config{Lock: lock})
		require.ErrorIs(t, err, guard.ErrInvalid)
	}
	_, err := fencekit.NewOnPostgres(nil, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
}
