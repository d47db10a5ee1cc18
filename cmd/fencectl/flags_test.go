package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func portOf(config *pgx.ConnConfig) string { return strconv.Itoa(int(config.Port)) }

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

func TestFlags_EmptyVariableCountsAsUnset(t *testing.T) {
	for _, name := range []string{"SCHEMA", "OUTPUT", "TIMEOUT"} {
		t.Setenv("FENCEKIT_"+name, "")
	}
	require.Contains(t, get(t), `"fence".resource`)
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

func TestFlags_HelpNamesEachVariable(t *testing.T) {
	t.Parallel()
	up, _, err := newRoot().Find([]string{"migrate", "up"})
	require.NoError(t, err)
	help := fencectl(t, "migrate", "up", "--help")
	require.Equal(t, cli.ExitOK, help.Code)
	require.Empty(t, help.Stderr)
	up.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		require.Contains(t, help.Stdout, "--"+f.Name)
		require.Contains(t, help.Stdout, "("+cli.Variable(f)+")")
	})
	require.Contains(t, help.Stdout, "FENCEKIT_DATABASE_URL")
}

func TestFlags_OfADatabaseAreThoseOfMigrate(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "version"} {
		help := fencectl(t, append(strings.Fields(command), "--help")...).Stdout
		require.Contains(t, help, "--output", command)
		for _, flag := range []string{"--database-url", "--schema", "--timeout"} {
			require.NotContains(t, help, flag, command)
		}
	}
	for _, line := range []string{"migrate get --schema shop", "migrate --schema shop get", "--schema shop migrate get"} {
		require.Contains(t, fencectl(t, strings.Fields(line)...).Stdout, `"shop".resource`, line)
	}
}
