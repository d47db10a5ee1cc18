package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// If a role lacks a right, the first check says so, with the command to run, instead of an
// eviction that fails silently.
func TestCheck_NamesMissingRights(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	owner := openPool(t, dsn)
	mustExec(t, owner, "create role service login")
	t.Cleanup(func() {
		_, err := owner.Exec(context.Background(), "drop owned by service; drop role service")
		require.NoError(t, err)
	})
	pool := openPool(t, dsn, func(cfg *pgxpool.Config) { cfg.ConnConfig.User = "service" })
	grants := []struct{ lacking, sql string }{
		{"permission denied for schema", "grant usage on schema fence to service"},
		{"permission denied for table migration", "grant select on fence.migration to service"},
		{"execute on fence.claim(", "grant execute on all functions in schema fence to service"},
		{"execute on fence.seal(", "grant execute on all routines in schema fence to service"},
		{"select on fence.history, ", ""},
	}
	for _, g := range grants {
		err := newStore(t, pool, nil).Check(t.Context())
		requireNotReady(t, err, postgres.MissingRights)
		require.ErrorContains(t, err, g.lacking)
		require.ErrorContains(t, err, "fencectl migrate up --schema fence --app-role ROLE")
		if g.sql == "" {
			require.NoError(t, postgres.GrantRoles(t.Context(), owner, "", postgres.Roles{App: "service"}))
		} else {
			mustExec(t, owner, g.sql)
		}
	}
	store := newStore(t, pool, nil)
	require.NoError(t, store.Check(t.Context()))
	write(t, store, claim(t, store, grant(5, "a")), statement("select 1"))
	_, err := store.Entries(t.Context(), resource, 0, 10)
	require.NoError(t, err, "the remedy in the message suffices")
}

// An error that a limit of Fencekit's causes names the setting.
func TestRun_NamesTheLimitThatWasReached(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	claimed := claim(t, newStore(t, pool, patient()), grant(5, "a"))
	blocker, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, blocker.Rollback(t.Context())) }()
	_, err = blocker.Exec(t.Context(), "lock table item in share mode")
	require.NoError(t, err)

	for name, c := range map[string]struct {
		limit func(*postgres.Config) // of one kind alone: another one could be reached first
		op    storage.Op[pgx.Tx]
	}{
		"LockTimeout is 100ms": {func(cfg *postgres.Config) { cfg.LockTimeout = 100 * time.Millisecond }, statement("insert into item values ('a', 1)")},
		"StatementTimeout is 200ms": {func(cfg *postgres.Config) {
			cfg.LockTimeout, cfg.StatementTimeout = 200*time.Millisecond, 200*time.Millisecond
		}, statement("select pg_sleep(60)")},
		"IdleTimeout is 100ms": {func(cfg *postgres.Config) { cfg.IdleTimeout = 100 * time.Millisecond }, do(func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "select 1"); err != nil {
				return err
			}
			// Until the server has ended the session, which it does by itself.
			require.Eventually(t, func() bool {
				return query[int](t, pool, "select count(*)::int from pg_stat_activity where state = 'idle in transaction' and pid <> $1 and datname = current_database()",
					blocker.Conn().PgConn().PID()) == 0
			}, time.Minute, 10*time.Millisecond)
			_, err := tx.Exec(ctx, "select 1")
			return err
		})},
	} {
		cfg := patient()
		c.limit(cfg)
		_, err := attempt(t.Context(), newStore(t, pool, cfg), c.op, claimed)
		require.ErrorContains(t, err, "postgres.Config."+name)
	}
}

func TestHistory_RejectsAnAbsurdLimit(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t), nil)
	for _, limit := range []int{0, -1} {
		_, err := store.Entries(t.Context(), resource, 0, limit)
		require.ErrorIs(t, err, guard.ErrInvalid)
		_, err = store.Rejections(t.Context(), resource, limit)
		require.ErrorIs(t, err, guard.ErrInvalid)
	}
}
