package postgres_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Concurrent calls wait for each other, and together apply each migration once.
func TestMigrate_AppliesEachOnce(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgserver.Database(t))
	known, err := postgres.MigrationStatus(t.Context(), pool, "")
	require.NoError(t, err)
	var calls []<-chan result[[]postgres.Migration]
	for range 3 {
		calls = append(calls, background(func() ([]postgres.Migration, error) { return postgres.Migrate(context.Background(), pool, "") }))
	}
	applied := 0
	for _, call := range calls {
		r := <-call
		require.NoError(t, r.err)
		applied += len(r.value)
	}
	require.Equal(t, len(known), applied)
	again, err := postgres.Migrate(t.Context(), pool, postgres.DefaultSchema)
	require.NoError(t, err)
	require.Empty(t, again)
	status, err := postgres.MigrationStatus(t.Context(), pool, "")
	require.NoError(t, err)
	for i, m := range status {
		require.True(t, m.Applied())
		require.False(t, known[i].Applied())
		require.False(t, i > 0 && m.Version <= status[i-1].Version)
		require.NotEmpty(t, m.Name)
	}
	claim(t, newStore(t, pool, nil), grant(5, "a"))
}

// Two schemas of one database are independent.
func TestMigrate_AnySchema(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	for _, schema := range []string{"user", strings.Repeat("s", 40)} {
		_, err := postgres.Migrate(t.Context(), pool, schema)
		require.NoError(t, err)
		store := newStore(t, pool, &postgres.Config{Schema: schema})
		c := claim(t, store, grant(5, "a"))
		write(t, store, c, set(schema, 1))
		claim(t, store, grant(6, "b"))
		_, err = attempt(t.Context(), store, statement("select 1"), c)
		require.ErrorIs(t, err, storage.ErrStaleToken)
		require.Len(t, kinds(t, store), 3)
	}
	require.Empty(t, kinds(t, newStore(t, pool, nil)))
}

// Applying the files by hand has the same result as Migrate.
func TestMigrations_CanBeAppliedByHand(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgserver.Database(t))
	mustExec(t, pool, "create schema fence; create table item (key text primary key, value bigint not null)")
	migrations, err := postgres.Migrations("")
	require.NoError(t, err)
	store := newStore(t, pool, nil)
	for _, m := range migrations {
		_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
		requireNotReady(t, err, postgres.NotMigrated)
		require.ErrorContains(t, err, `fencectl migrate up --schema fence`)
		mustExec(t, pool, m.SQL)
	}
	write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	again, err := postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	require.Empty(t, again)
	_, err = pool.Exec(t.Context(), migrations[0].SQL)
	require.Error(t, err, "none is applied twice")
}

// A migration that fails leaves nothing of itself, and can be repeated.
func TestMigrate_WithoutRightsChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	admin := openPool(t, dsn)
	pool := openPool(t, dsn, as(newRole(t, admin, "guest")))
	applied, err := postgres.Migrate(t.Context(), pool, "")
	require.ErrorContains(t, err, "42501")
	requireNotReady(t, err, postgres.MissingRights)
	require.ErrorContains(t, err, "grant create on database DATABASE to ROLE")
	require.Empty(t, applied)
	require.False(t, query[bool](t, admin, "select exists (select from pg_namespace where nspname = 'fence')"))
	_, err = postgres.Migrate(t.Context(), admin, "")
	require.NoError(t, err)
	_, err = newStore(t, pool, nil).Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
	require.ErrorContains(t, err, "42501")
	requireNotReady(t, err, postgres.MissingRights)
}

// A second schema with fences in one database may be a mistake that no rejection shows: the
// first check of a store on either of them logs a warning.
func TestCheck_WarnsOfAnotherSchemaWithFences(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	warned := func(schema string) string {
		var text logged
		store := newStore(t, pool, &postgres.Config{Schema: schema, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		require.NoError(t, store.Check(t.Context()))
		return text.String()
	}
	claim(t, newStore(t, pool, nil), grant(5, "a"))
	require.Empty(t, warned("fence"))
	_, err := postgres.Migrate(t.Context(), pool, "other")
	require.NoError(t, err)
	require.Empty(t, warned("fence"), "no fence in it")
	require.Contains(t, warned("other"), "schema=other others=fence")
	claim(t, newStore(t, pool, &postgres.Config{Schema: "other"}), grant(5, "a"))
	require.Contains(t, warned("fence"), "schema=fence others=other")
}
