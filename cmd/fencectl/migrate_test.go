package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMigrateUp_AppliesEachOnce(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	n := len(known(t))
	table := tableOf("version,name\n" + each(t, func(m postgres.Migration) string { return fmt.Sprintf("%d,%s\n", m.Version, m.Name) }))
	require.Equal(t, ended(cli.ExitOK, table, fmt.Sprintf("applied %d migrations to schema fence\n", n)),
		fencectl(t, "migrate", "up", "--database-url", dsn))
	require.Equal(t, ended(cli.ExitOK, "", "nothing to do: schema fence has every migration that this fencectl knows\n"),
		fencectl(t, "migrate", "up", "--database-url", dsn))
}

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

func TestMigrateUp_GrantsRoles(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	conn := connect(t, dsn)
	app, reader := fmt.Sprintf("app_%016x", rand.Uint64()), fmt.Sprintf("reader_%016x", rand.Uint64())
	defer func() {
		for _, role := range []string{app, reader} {
			require.NoError(t, execute(t, conn, "drop owned by "+role+"; drop role "+role))
		}
	}()
	grants := "role " + app + " may run guarded transactions in schema fence\nrole " + reader + " may read schema fence\n"
	for _, outcome := range []string{"applied ", "nothing to do"} {
		got := fencectl(t, "migrate", "up", "--app-role", app, "--reader-role", reader, "--database-url", dsn)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		require.Contains(t, got.Stderr, grants+outcome)
	}
	var can bool
	const claim = "fence.claim(text[], bigint[], bigint[], text[], bigint, text, bigint[], bigint[])"
	require.NoError(t, conn.QueryRow(t.Context(), "select has_function_privilege($1, '"+claim+"', 'execute') and has_table_privilege($2, 'fence.history', 'select') "+
		"and not has_function_privilege($2, '"+claim+"', 'execute') and not has_table_privilege($1, 'fence.history', 'insert')", app, reader).Scan(&can))
	require.True(t, can)
}
