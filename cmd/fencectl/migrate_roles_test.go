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
