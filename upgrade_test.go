package fencekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// docs/operate.md: binaries before and after a migration. One that is older than the
// schema goes on, and starts; one that is newer is rejected until the schema is migrated, while
// those that run go on.
func TestUpgrade_MigrateFirst(t *testing.T) {
	t.Parallel()
	pool := migratedPool(t)
	g := newGuard(t, pool, nil)
	require.NoError(t, guard.Do(t.Context(), g, "a", nothing))
	_, err := pool.Exec(t.Context(), "insert into fence.migration (version, name) values (99, 'later')")
	require.NoError(t, err)
	started := newGuard(t, pool, nil)
	for _, older := range []*fencekit.Client{g, started} {
		require.NoError(t, older.Check(t.Context()))
		require.NoError(t, guard.Do(t.Context(), older, "b", nothing))
		require.NoError(t, older.Migrate(t.Context()), "it has nothing to do")
	}
	// As if this binary had one migration more than the schema.
	_, err = pool.Exec(t.Context(), "delete from fence.migration where version = 99 or version = (select max(version) from fence.migration where version < 99)")
	require.NoError(t, err)
	newer := newGuard(t, pool, nil)
	requireNotReady(t, newer.Check(t.Context()), postgres.NotMigrated)
	requireNotReady(t, guard.Do(t.Context(), newer, "c", nothing), postgres.NotMigrated)
	require.NoError(t, guard.Do(t.Context(), g, "c", nothing))
}
