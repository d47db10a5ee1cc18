package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

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

func TestMigrateUp_BadRoleIsUsageAndNamed(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	got := fencectl(t, "migrate", "up", "--app-role", "public", "--database-url", dsn)
	require.Equal(t, cli.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, `role name "public"`)
	got = fencectl(t, "migrate", "up", "--app-role", "postgres", "--database-url", dsn)
	require.Equal(t, cli.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "role postgres is a superuser, the owner of schema")
	require.Contains(t, got.Stdout, "functions", "the applied migrations are printed")
}

func TestMigrateUp_WithoutCreateRoleSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	owner := newRole(t, dsn, "login")
	admin := connect(t, dsn)
	require.NoError(t, execute(t, admin, "create schema fence authorization "+owner))
	defer func() { require.NoError(t, execute(t, admin, "drop owned by "+owner)) }()
	asOwner := with(t, with(t, dsn, "user", owner), "password", "pw")
	got := fencectl(t, "migrate", "up", "--app-role", "no_such_shop", "--database-url", asOwner)
	require.Equal(t, cli.ExitNotReady, got.Code)
	require.Contains(t, got.Stderr, "give it CREATEROLE, or make the role first: create role no_such_shop")
	require.NotContains(t, got.Stderr, "create schemas")
	require.Contains(t, got.Stdout, "functions", "the applied migrations are printed")
}

// The app role of a service has no right but to run guarded transactions.
func TestMigrateUp_AppRoleHasNothingToDo(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	service := newRole(t, dsn, "login")
	admin := connect(t, dsn)
	defer func() { require.NoError(t, execute(t, admin, "drop owned by "+service)) }()
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--app-role", service, "--database-url", dsn).Code)
	got := fencectl(t, "migrate", "up", "--database-url", with(t, with(t, dsn, "user", service), "password", "pw"))
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "nothing to do")
}
