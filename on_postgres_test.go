package fencekit_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
)

func newOnPostgres(t *testing.T, pool *pgxpool.Pool, cfg *fencekit.Config) *fencekit.Guard {
	t.Helper()
	g, err := fencekit.NewOnPostgres(pool, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

func TestNewOnPostgres_NeedsNoEtcd(t *testing.T) {
	t.Parallel()
	pool := emptyPool(t)
	cfg := &fencekit.Config{Guard: guard.Config{KeepFor: -1}} // each call acquires anew
	a, b := newOnPostgres(t, pool, cfg), newOnPostgres(t, pool, cfg)
	require.ErrorIs(t, guard.Do(t.Context(), a, "sku/42", nothing), fence.ErrUnavailable)
	require.NoError(t, a.Migrate(t.Context()))
	require.NoError(t, a.Check(t.Context()))
	_, err := pool.Exec(t.Context(), "create table counter (n int not null); insert into counter values (0)")
	require.NoError(t, err)
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
	require.NoError(t, pool.QueryRow(t.Context(), "select n from counter").Scan(&n))
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
