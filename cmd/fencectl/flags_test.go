package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestFlags_VariableStandsInAndFlagWins(t *testing.T) {
	dsn := pgserver.Database(t)
	t.Setenv("FENCEKIT_DATABASE_URL", dsn)
	t.Setenv("FENCEKIT_SCHEMA", "shop")
	t.Setenv("FENCEKIT_OUTPUT", "csv")
	t.Setenv("FENCEKIT_TIMEOUT", "5m")
	csv := "version,name\n" + each(t, func(m postgres.Migration) string { return fmt.Sprintf("%d,%s\n", m.Version, m.Name) })
	require.Equal(t, ended(cli.ExitOK, csv, fmt.Sprintf("applied %d migrations to schema shop\n", len(known(t)))), fencectl(t, "migrate", "up"))
	require.Contains(t, fencectl(t, "migrate", "up", "--schema", "store", "-o", "jsonl").Stdout, `{"version":1,"name":"schema"}`+"\n")
	require.Equal(t, cli.ExitNotReady, fencectl(t, "migrate", "status", "--database-url", with(t, dsn, "dbname", "no_such_database")).Code)

	t.Setenv("FENCEKIT_TIMEOUT", "1ns")
	require.Contains(t, fencectl(t, "migrate", "status").Stderr, "gave up after 1ns")
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "status", "--timeout", "5m").Code)
}

func TestFlags_BadVariableIsUsageAndNamed(t *testing.T) {
	for name, value := range map[string]string{"FENCEKIT_SCHEMA": "Fence", "FENCEKIT_OUTPUT": "xml", "FENCEKIT_TIMEOUT": "soon"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			got := fencectl(t, "migrate", "get")
			require.Equal(t, cli.ExitUsage, got.Code)
			require.Empty(t, got.Stdout)
			require.Contains(t, got.Stderr, name)
			require.NoError(t, os.Unsetenv(name))
			require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "get").Code)
		})
	}
}
