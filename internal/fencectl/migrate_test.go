package fencectl

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMigrateStatus_MissingIsNotReadyAndChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	table := tableOf("version,name,applied_at\n" + each(t, func(m postgres.Migration) string { return fmt.Sprintf("%d,%s,\n", m.Version, m.Name) }))
	require.Equal(t, ended(cli.ExitNotReady, table, fmt.Sprintf("fencectl: postgres: schema is not up to date: schema shop lacks %d migrations; run \"fencectl migrate up --schema shop\"\n", len(known(t)))),
		fencectl(t, "migrate", "status", "--schema", "shop", "--database-url", dsn))
	var schemas int
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "select count(*) from pg_namespace where nspname in ('fence', 'shop')").Scan(&schemas))
	require.Zero(t, schemas)
}

// known returns the migrations there are.
func known(t *testing.T) []postgres.Migration {
	t.Helper()
	migrations, err := postgres.Migrations("")
	require.NoError(t, err)
	return migrations
}

// each returns what line says of each migration.
func each(t *testing.T, line func(postgres.Migration) string) (text string) {
	t.Helper()
	for _, m := range known(t) {
		text += line(m)
	}
	return text
}
